package sqlrewrite

// withoutSideEffects tells the functions of pg_catalog that change nothing:
// no row, no sequence, no setting, no lock, no file, and no transaction id is
// assigned. Functions that run SQL from a string are not on the list
// (query_to_xml, table_to_xml, ts_stat, …). Source: the PostgreSQL manual,
// chapter "Functions and Operators".
func withoutSideEffects(word []byte) bool {
	return mathFunction(word) ||
		textFunction(word) ||
		timeFunction(word) ||
		jsonFunction(word) ||
		setFunction(word) ||
		otherFunction(word) ||
		sessionFunction(word) ||
		catalogFunction(word)
}

// mathFunction: numbers.
func mathFunction(word []byte) bool {
	switch string(word) {
	case "abs", "acos", "acosd", "acosh", "asin", "asind", "asinh", "atan", "atan2", "atan2d",
		"atand", "atanh", "cbrt", "ceil", "ceiling", "cos", "cosd", "cosh", "cot", "cotd",
		"degrees", "div", "erf", "erfc", "exp", "factorial", "float4", "float8", "floor", "gcd",
		"int2", "int4", "int8", "lcm", "ln", "log", "log10", "min_scale", "mod", "numeric",
		"pi", "pow", "power", "radians", "random", "round", "scale", "sign", "sin", "sind",
		"sinh", "sqrt", "tan", "tand", "tanh", "trim_scale", "trunc", "width_bucket":
		return true
	}
	return false
}

// textFunction: strings and bytes.
func textFunction(word []byte) bool {
	switch string(word) {
	case "ascii", "bit_count", "bit_length", "bpchar", "btrim", "char_length",
		"character_length", "chr", "concat", "concat_ws", "convert", "convert_from",
		"convert_to", "crc32", "crc32c", "decode", "encode", "format", "get_bit", "get_byte",
		"initcap", "is_normalized", "left", "length", "like", "like_escape", "lower", "lpad",
		"ltrim", "md5", "name", "normalize", "notlike", "octet_length", "overlay",
		"parse_ident", "quote_ident", "quote_literal", "quote_nullable", "regexp_count",
		"regexp_instr", "regexp_like", "regexp_match", "regexp_matches", "regexp_replace",
		"regexp_split_to_array", "regexp_split_to_table", "regexp_substr", "repeat", "replace",
		"reverse", "right", "rpad", "rtrim", "set_bit", "set_byte", "sha224", "sha256",
		"sha384", "sha512", "similar_to_escape", "split_part", "starts_with", "string_to_array",
		"string_to_table", "strpos", "substr", "substring", "text", "textcat", "to_ascii",
		"to_hex", "translate", "unistr", "upper", "varbit", "varchar":
		return true
	}
	return false
}

// timeFunction: dates and times.
func timeFunction(word []byte) bool {
	switch string(word) {
	case "age", "clock_timestamp", "date", "date_bin", "date_part", "date_trunc", "isfinite",
		"justify_days", "justify_hours", "justify_interval", "make_date", "make_interval",
		"make_time", "make_timestamp", "make_timestamptz", "now", "overlaps",
		"statement_timestamp", "timeofday", "timestamptz", "timetz", "timezone", "to_char",
		"to_date", "to_number", "to_timestamp", "transaction_timestamp":
		return true
	}
	return false
}

// jsonFunction: JSON and XML.
func jsonFunction(word []byte) bool {
	switch string(word) {
	case "array_to_json", "json_agg", "json_array_elements", "json_array_elements_text",
		"json_array_length", "json_build_array", "json_build_object", "json_each",
		"json_each_text", "json_extract_path", "json_extract_path_text", "json_object",
		"json_object_agg", "json_object_keys", "json_populate_record",
		"json_populate_recordset", "json_strip_nulls", "json_to_record", "json_to_recordset",
		"json_typeof", "jsonb_agg", "jsonb_array_elements", "jsonb_array_elements_text",
		"jsonb_array_length", "jsonb_build_array", "jsonb_build_object", "jsonb_each",
		"jsonb_each_text", "jsonb_extract_path", "jsonb_extract_path_text", "jsonb_insert",
		"jsonb_object", "jsonb_object_agg", "jsonb_object_keys", "jsonb_path_exists",
		"jsonb_path_exists_tz", "jsonb_path_match", "jsonb_path_match_tz", "jsonb_path_query",
		"jsonb_path_query_array", "jsonb_path_query_array_tz", "jsonb_path_query_first",
		"jsonb_path_query_first_tz", "jsonb_path_query_tz", "jsonb_populate_record",
		"jsonb_populate_recordset", "jsonb_pretty", "jsonb_set", "jsonb_set_lax",
		"jsonb_strip_nulls", "jsonb_to_record", "jsonb_to_recordset", "jsonb_typeof",
		"row_to_json", "to_json", "to_jsonb", "xml_is_well_formed",
		"xml_is_well_formed_content", "xml_is_well_formed_document", "xmlagg", "xmlcomment",
		"xpath", "xpath_exists":
		return true
	}
	return false
}

// setFunction: aggregates, windows, arrays and ranges.
func setFunction(word []byte) bool {
	switch string(word) {
	case "any_value", "array_agg", "array_append", "array_cat", "array_dims", "array_fill",
		"array_length", "array_lower", "array_ndims", "array_position", "array_positions",
		"array_prepend", "array_remove", "array_replace", "array_to_string", "array_upper",
		"avg", "bit_and", "bit_or", "bit_xor", "bool_and", "bool_or", "cardinality", "corr",
		"count", "covar_pop", "covar_samp", "cume_dist", "datemultirange", "daterange",
		"dense_rank", "every", "first_value", "generate_series", "generate_subscripts",
		"int4multirange", "int4range", "int8multirange", "int8range", "isempty", "lag",
		"last_value", "lead", "lower_inc", "lower_inf", "max", "min", "mode", "multirange",
		"nth_value", "ntile", "nummultirange", "numrange", "percent_rank", "percentile_cont",
		"percentile_disc", "range_agg", "range_intersect_agg", "range_merge", "rank",
		"regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope",
		"regr_sxx", "regr_sxy", "regr_syy", "row_number", "stddev", "stddev_pop", "stddev_samp",
		"string_agg", "sum", "trim_array", "tsmultirange", "tsrange", "tstzmultirange",
		"tstzrange", "unnest", "upper_inc", "upper_inf", "var_pop", "var_samp", "variance":
		return true
	}
	return false
}

// otherFunction: the other types, text search and UUIDs.
func otherFunction(word []byte) bool {
	switch string(word) {
	case "abbrev", "area", "array_to_tsvector", "box", "broadcast", "center", "circle",
		"diagonal", "diameter", "enum_first", "enum_last", "enum_range", "family",
		"gen_random_uuid", "get_current_ts_config", "height", "host", "hostmask", "inet_merge",
		"inet_same_family", "isclosed", "isopen", "json_to_tsvector", "jsonb_to_tsvector",
		"line", "lseg", "macaddr8_set7bit", "masklen", "netmask", "network", "npoints",
		"num_nonnulls", "num_nulls", "numnode", "path", "pclose", "phraseto_tsquery",
		"plainto_tsquery", "point", "polygon", "popen", "querytree", "radius", "set_masklen",
		"setweight", "slope", "strip", "to_tsquery", "to_tsvector", "ts_debug", "ts_delete",
		"ts_filter", "ts_headline", "ts_lexize", "ts_parse", "ts_rank", "ts_rank_cd",
		"ts_token_type", "tsquery_phrase", "tsvector_to_array", "websearch_to_tsquery", "width":
		return true
	}
	return false
}

// sessionFunction: the session and the server.
func sessionFunction(word []byte) bool {
	switch string(word) {
	case "current_database", "current_query", "current_schema", "current_schemas",
		"current_setting", "currval", "inet_client_addr", "inet_client_port",
		"inet_server_addr", "inet_server_port", "lastval", "mxid_age", "pg_backend_pid",
		"pg_blocking_pids", "pg_client_encoding", "pg_conf_load_time", "pg_current_snapshot",
		"pg_current_wal_flush_lsn", "pg_current_wal_insert_lsn", "pg_current_wal_lsn",
		"pg_current_xact_id_if_assigned", "pg_is_in_recovery", "pg_is_other_temp_schema",
		"pg_is_wal_replay_paused", "pg_jit_available", "pg_last_wal_receive_lsn",
		"pg_last_wal_replay_lsn", "pg_last_xact_replay_timestamp", "pg_my_temp_schema",
		"pg_postmaster_start_time", "pg_safe_snapshot_blocking_pids", "pg_sleep",
		"pg_sleep_for", "pg_sleep_until", "pg_snapshot_xip", "pg_snapshot_xmax",
		"pg_snapshot_xmin", "pg_stat_get_activity", "pg_trigger_depth",
		"pg_visible_in_snapshot", "pg_wal_lsn_diff", "pg_walfile_name",
		"pg_xact_commit_timestamp", "pg_xact_status", "row_security_active",
		"txid_current_if_assigned", "txid_current_snapshot", "txid_snapshot_xip",
		"txid_snapshot_xmax", "txid_snapshot_xmin", "txid_status", "txid_visible_in_snapshot",
		"version":
		return true
	}
	return false
}

// catalogFunction: catalogues, rights and sizes.
func catalogFunction(word []byte) bool {
	switch string(word) {
	case "acldefault", "aclexplode", "col_description", "format_type",
		"has_any_column_privilege", "has_column_privilege", "has_database_privilege",
		"has_foreign_data_wrapper_privilege", "has_function_privilege",
		"has_language_privilege", "has_parameter_privilege", "has_schema_privilege",
		"has_sequence_privilege", "has_server_privilege", "has_table_privilege",
		"has_tablespace_privilege", "has_type_privilege", "makeaclitem", "obj_description",
		"pg_char_to_encoding", "pg_collation_actual_version", "pg_collation_for",
		"pg_collation_is_visible", "pg_column_compression", "pg_column_size",
		"pg_conversion_is_visible", "pg_database_size", "pg_describe_object",
		"pg_encoding_to_char", "pg_filenode_relation", "pg_function_is_visible",
		"pg_get_constraintdef", "pg_get_expr", "pg_get_function_arguments",
		"pg_get_function_identity_arguments", "pg_get_function_result",
		"pg_get_function_sqlbody", "pg_get_functiondef", "pg_get_indexdef", "pg_get_keywords",
		"pg_get_object_address", "pg_get_partition_constraintdef", "pg_get_partkeydef",
		"pg_get_publication_tables", "pg_get_ruledef", "pg_get_serial_sequence",
		"pg_get_statisticsobjdef", "pg_get_statisticsobjdef_columns", "pg_get_triggerdef",
		"pg_get_userbyid", "pg_get_viewdef", "pg_has_role", "pg_identify_object",
		"pg_identify_object_as_address", "pg_index_column_has_property",
		"pg_index_has_property", "pg_indexam_has_property", "pg_indexes_size",
		"pg_opclass_is_visible", "pg_operator_is_visible", "pg_opfamily_is_visible",
		"pg_options_to_table", "pg_partition_ancestors", "pg_partition_root",
		"pg_partition_tree", "pg_relation_filenode", "pg_relation_filepath",
		"pg_relation_is_publishable", "pg_relation_is_updatable", "pg_relation_size",
		"pg_sequence_last_value", "pg_sequence_parameters", "pg_size_bytes", "pg_size_pretty",
		"pg_statistics_obj_is_visible", "pg_table_is_visible", "pg_table_size",
		"pg_tablespace_databases", "pg_tablespace_location", "pg_tablespace_size",
		"pg_total_relation_size", "pg_ts_config_is_visible", "pg_ts_dict_is_visible",
		"pg_ts_parser_is_visible", "pg_ts_template_is_visible", "pg_type_is_visible",
		"pg_typeof", "shobj_description", "to_regclass", "to_regcollation", "to_regnamespace",
		"to_regoper", "to_regoperator", "to_regproc", "to_regprocedure", "to_regrole",
		"to_regtype":
		return true
	}
	return false
}
