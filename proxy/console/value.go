package console

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// typeName is how documents call a type.
func typeName(oid uint32) string {
	switch oid {
	case wire.TypeBool:
		return "bool"
	case wire.TypeInt4:
		return "int4"
	case wire.TypeInt8:
		return "int8"
	case wire.TypeFloat8:
		return "float8"
	case wire.TypeTimestamptz:
		return "timestamptz"
	}
	return "text"
}

// sizeOf is the length of a type's values, -1 where it varies.
func sizeOf(oid uint32) int16 {
	switch oid {
	case wire.TypeBool:
		return 1
	case wire.TypeInt2:
		return 2
	case wire.TypeInt4:
		return 4
	case wire.TypeInt8, wire.TypeFloat8, wire.TypeTimestamptz:
		return 8
	}
	return -1
}

// A field is a column of a result.
type field struct {
	name string
	typ  uint32
}

// described are the fields as the client is told of them, in the formats that it
// asked for: none, one for all, or one for each.
func described(fields []field, formats []bool) []wire.Field {
	all := make([]wire.Field, len(fields))
	for i, f := range fields {
		all[i] = wire.Field{Name: f.name, Type: f.typ, Size: sizeOf(f.typ)}
		switch {
		case len(formats) == 1:
			all[i].Binary = formats[0]
		case i < len(formats):
			all[i].Binary = formats[i]
		}
	}
	return all
}

// encoded is a value as it is sent; nil is NULL. Values are strings, int64, float64,
// bool and time.Time, as the field's type has them.
func encoded(value any, f wire.Field) []byte {
	switch v := value.(type) {
	case nil:
		return nil
	case string:
		return append([]byte{}, v...)
	case int64:
		return encodedInt(v, f)
	case float64:
		if f.Binary {
			return binary.BigEndian.AppendUint64(nil, math.Float64bits(v))
		}
		return strconv.AppendFloat(nil, v, 'g', -1, 64)
	case bool:
		return encodedBool(v, f)
	case time.Time:
		return encodedTime(v, f)
	}
	return fmt.Appendf(nil, "%v", value)
}

func encodedInt(v int64, f wire.Field) []byte {
	switch {
	case f.Binary && f.Type == wire.TypeInt4:
		return binary.BigEndian.AppendUint32(nil, uint32(v))
	case f.Binary:
		return binary.BigEndian.AppendUint64(nil, uint64(v))
	}
	return strconv.AppendInt(nil, v, 10)
}

func encodedBool(v bool, f wire.Field) []byte {
	switch {
	case f.Binary && v:
		return []byte{1}
	case f.Binary:
		return []byte{0}
	case v:
		return []byte("t")
	}
	return []byte("f")
}

// encodedTime is a moment: in text as DateStyle ISO and TimeZone UTC have it, in
// binary the microseconds since 2000 (timestamp.h).
func encodedTime(v time.Time, f wire.Field) []byte {
	v = v.UTC().Truncate(time.Microsecond)
	if !f.Binary {
		return v.AppendFormat(nil, "2006-01-02 15:04:05.999999-07")
	}
	epoch := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	return binary.BigEndian.AppendUint64(nil, uint64(v.UnixMicro()-epoch.UnixMicro()))
}

// readable reports whether a parameter of a type that the client has said can
// stand where another is wanted.
func readable(said, wanted uint32) bool {
	switch said {
	case wire.TypeInt2, wire.TypeInt4, wire.TypeInt8:
		return wanted == wire.TypeInt8
	case wire.TypeText, wire.TypeVarchar:
		return true // a number may come as text
	}
	return false
}

// asText reads a parameter of a type as a literal would stand in the statement.
func asText(p wire.Parameter, typ uint32) (string, error) {
	if !p.Binary {
		return string(p.Value), nil
	}
	switch typ {
	case wire.TypeText, wire.TypeVarchar:
		return string(p.Value), nil
	case wire.TypeInt2, wire.TypeInt4, wire.TypeInt8:
		if n, ok := wire.Int(p.Value); ok && len(p.Value) == int(sizeOf(typ)) {
			return strconv.FormatInt(n, 10), nil
		}
	}
	return "", faultf("22P03", "incorrect binary data format in a parameter")
}
