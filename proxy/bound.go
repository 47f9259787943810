package proxy

import (
	"encoding/binary"
	"strconv"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// Types that a Parse can give a parameter of set_config (pg_type.dat).
const (
	typeUnspecified uint32 = 0
	typeBool        uint32 = 16
	typeInt8        uint32 = 20
	typeInt2        uint32 = 21
	typeInt4        uint32 = 23
	typeText        uint32 = 25
	typeUnknown     uint32 = 705
	typeVarchar     uint32 = 1043
)

// bindSettings returns what a statement does to the tag with the parameters of
// a Bind, whose body behind the names begins with rest. What can't be told
// stays unknown, and is read back once it was carried out.
func bindSettings(st statement, rest []byte) []sqlrewrite.Setting {
	bound := false
	for _, set := range st.settings {
		bound = bound || set.Bound != sqlrewrite.Bound{}
	}
	if !bound {
		return st.settings
	}
	values := wire.ReadParameters(rest)
	get := func(p sqlrewrite.Param) (sqlrewrite.Argument, bool) {
		if p.Number > len(values) {
			return sqlrewrite.Argument{}, false
		}
		oid := typeUnspecified
		if p.Number <= len(st.types) {
			oid = st.types[p.Number-1]
		}
		return argument(values[p.Number-1], oid, p.Type)
	}
	var all []sqlrewrite.Setting
	for _, set := range st.settings {
		if set, carries := set.Resolve(get); carries {
			all = append(all, set)
		}
	}
	return all
}

// argument reads the value of a parameter, which is of the type oid or, where
// Parse left that open, of the one that the text gives it.
func argument(v wire.Parameter, oid uint32, t sqlrewrite.ParamType) (arg sqlrewrite.Argument, ok bool) {
	switch oid {
	case typeUnspecified:
	case typeText, typeVarchar, typeUnknown:
		t = sqlrewrite.ParamText
	case typeInt2, typeInt4, typeInt8:
		t = sqlrewrite.ParamInteger
	case typeBool:
		t = sqlrewrite.ParamBool
	default:
		return arg, false
	}
	arg.Whole = t == sqlrewrite.ParamInteger
	switch {
	case v.Value == nil:
		arg.Null = true
		return arg, true
	case !v.Binary, t == sqlrewrite.ParamText:
		arg.Text = string(v.Value)
		return arg, true
	case t == sqlrewrite.ParamBool && len(v.Value) == 1:
		arg.Text = strconv.FormatBool(v.Value[0] != 0)
		return arg, true
	case t == sqlrewrite.ParamInteger:
		arg.Text, ok = wholeNumber(v.Value)
		return arg, ok
	}
	return arg, false
}

// wholeNumber reads an integer in binary format.
func wholeNumber(v []byte) (string, bool) {
	var n int64
	switch len(v) {
	case 2:
		n = int64(int16(binary.BigEndian.Uint16(v)))
	case 4:
		n = int64(int32(binary.BigEndian.Uint32(v)))
	case 8:
		n = int64(binary.BigEndian.Uint64(v))
	default:
		return "", false
	}
	return strconv.FormatInt(n, 10), true
}
