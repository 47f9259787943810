package proxy

import (
	"strconv"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// bindSettings returns what a statement does to the tag with the parameters of
// a Bind, whose body behind the names begins with rest. What can't be told
// stays unknown, and is read back once it was carried out.
func bindSettings(st statement, rest []byte) []sqlrewrite.Setting {
	bound := false
	for _, set := range st.settings {
		bound = bound || set.Bound != sqlrewrite.Bound{} || set.Call.IsBound()
	}
	if !bound {
		return st.settings
	}
	values := wire.ReadParameters(rest)
	get := func(p sqlrewrite.Param) (sqlrewrite.Argument, bool) {
		if p.Number > len(values) {
			return sqlrewrite.Argument{}, false
		}
		oid := wire.TypeUnspecified
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
	case wire.TypeUnspecified:
	case wire.TypeText, wire.TypeVarchar, wire.TypeUnknown:
		t = sqlrewrite.ParamText
	case wire.TypeInt2, wire.TypeInt4, wire.TypeInt8:
		t = sqlrewrite.ParamInteger
	case wire.TypeBool:
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
		n, ok := wire.Int(v.Value)
		arg.Text = strconv.FormatInt(n, 10)
		return arg, ok
	}
	return arg, false
}
