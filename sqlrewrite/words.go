package sqlrewrite

// longestWord is the length of the longest word that a list here holds.
const longestWord = 40

// fold writes word in lower case to buf, as PostgreSQL folds keywords: ASCII
// letters only. A word that fits no list comes back empty.
func fold(buf *[longestWord]byte, word []byte) []byte {
	if len(word) > len(buf) {
		return nil
	}
	for i, c := range word {
		buf[i] = lower(c)
	}
	return buf[:len(word)]
}

// construct tells the words that stand before a parenthesis without being the
// name of a function: PostgreSQL's reserved words, and those that src/include/
// parser/kwlist.h calls COL_NAME_KEYWORD in every version since 12.
func construct(w []byte) bool {
	switch string(w) {
	case "all", "and", "any", "array", "as", "asymmetric", "both", "case", "cast", "check",
		"collate", "constraint", "current_time", "current_timestamp", "default", "desc",
		"distinct", "do", "else", "end", "except", "fetch", "for", "foreign", "from", "group",
		"having", "in", "intersect", "lateral", "leading", "limit", "localtime",
		"localtimestamp", "not", "offset", "on", "only", "or", "order", "placing", "primary",
		"references", "returning", "select", "some", "symmetric", "table", "then", "to",
		"trailing", "union", "unique", "using", "variadic", "when", "where", "window", "with":
		return true
	case "between", "bigint", "bit", "boolean", "char", "character", "coalesce", "dec", "decimal",
		"exists", "extract", "float", "greatest", "grouping", "int", "integer", "interval",
		"least", "national", "nchar", "none", "nullif", "numeric", "overlay", "position",
		"precision", "real", "row", "setof", "smallint", "substring", "time", "timestamp",
		"treat", "trim", "values", "varchar", "xmlattributes", "xmlconcat", "xmlelement",
		"xmlexists", "xmlforest", "xmlnamespaces", "xmlparse", "xmlpi", "xmlroot",
		"xmlserialize", "xmltable":
		return true
	}
	return false
}

// precedesExpression tells the words that an expression, and so the name of a
// function, can follow. A word that isn't one of them ends an operand.
func precedesExpression(w []byte) bool {
	switch string(w) {
	case "all", "and", "any", "array", "as", "asymmetric", "between", "both", "by", "case",
		"columns", "content", "cross", "default", "distinct", "document", "else", "escape",
		"except", "exists", "fetch", "filter", "first", "following", "for", "from", "full",
		"group", "groups", "having", "ilike", "in", "inner", "intersect", "into", "is", "join",
		"key", "lateral", "leading", "left", "like", "limit", "natural", "next", "not", "of",
		"offset", "on", "only", "operator", "or", "order", "outer", "over", "overlaps",
		"partition", "passing", "path", "placing", "range", "recursive", "ref", "returning",
		"right", "row", "rows", "select", "set", "sets", "similar", "some", "standalone",
		"symmetric", "tablesample", "then", "to", "trailing", "union", "using", "value",
		"values", "variadic", "version", "when", "where", "window", "with", "zone":
		return true
	}
	return false
}
