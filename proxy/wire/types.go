package wire

import "encoding/binary"

// Types by their OID, 0 for one that wasn't said (pg_type.dat).
const (
	TypeUnspecified uint32 = 0
	TypeBool        uint32 = 16
	TypeInt8        uint32 = 20
	TypeInt2        uint32 = 21
	TypeInt4        uint32 = 23
	TypeText        uint32 = 25
	TypeFloat8      uint32 = 701
	TypeUnknown     uint32 = 705
	TypeVarchar     uint32 = 1043
	TypeTimestamptz uint32 = 1184
)

// Int reads an integer of 2, 4 or 8 bytes in binary format; ok is false for any
// other length.
func Int(v []byte) (n int64, ok bool) {
	switch len(v) {
	case 2:
		return int64(int16(binary.BigEndian.Uint16(v))), true
	case 4:
		return int64(int32(binary.BigEndian.Uint32(v))), true
	case 8:
		return int64(binary.BigEndian.Uint64(v)), true
	}
	return 0, false
}
