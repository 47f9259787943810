package sqlrewrite

import "encoding/binary"

// A keyword is a word that splitting or classifying looks at. All others are
// kwNone, PostgreSQL's own keywords too.
type keyword uint8

const (
	kwNone keyword = iota
	kwAbort
	kwAll
	kwAlter
	kwAnalyze // ANALYSE too
	kwAnd
	kwAs
	kwAtomic
	kwBegin
	kwBinary
	kwBy
	kwCall
	kwChain
	kwClose
	kwCluster
	kwCommit
	kwConcurrently
	kwConstraints
	kwCopy
	kwCreate
	kwCursor
	kwDatabase
	kwDeallocate
	kwDeclare
	kwDelete
	kwDiscard
	kwDistinct
	kwDo
	kwDrop
	kwEnd
	kwExecute
	kwExplain
	kwFor
	kwFrom
	kwFunction // PROCEDURE too
	kwGroup
	kwGrouping
	kwHold
	kwInsert
	kwInto
	kwJoin
	kwJoinKind // INNER, LEFT, RIGHT, FULL, OUTER, CROSS, NATURAL
	kwKey
	kwLike // ILIKE too
	kwLock
	kwMaterialized
	kwMerge
	kwNo
	kwNot
	kwOn
	kwOperator
	kwOr
	kwOrder
	kwOrdinality
	kwPartition
	kwPrepare
	kwPrepared
	kwPublication
	kwRecursive
	kwRefresh
	kwReindex
	kwRelease
	kwReplace
	kwReset
	kwRollback
	kwRollup // CUBE too
	kwSavepoint
	kwSchema
	kwSelect
	kwSet
	kwSets
	kwShare
	kwShow
	kwStart
	kwStdio // STDIN, STDOUT: PostgreSQL takes one for the other
	kwSubscription
	kwSystem
	kwTable
	kwTablesample
	kwTablespace
	kwTo
	kwTransaction
	kwUpdate
	kwVacuum
	kwValues
	kwVarying
	kwVerbose
	kwWith
)

// The lengths of the words that keywordOf knows.
const (
	shortestKeyword = len("as")
	longestKeyword  = len("concurrently")
)

// keywordOf looks an unquoted word up, in the list of words of its length.
func keywordOf(word []byte) keyword {
	if len(word) < shortestKeyword || len(word) > longestKeyword {
		return kwNone
	}
	// In lower case if it consists of letters, eight at a time: no other byte
	// becomes a letter by that bit.
	const lowerCase = 0x2020202020202020
	var buf [16]byte
	copy(buf[:], word)
	binary.LittleEndian.PutUint64(buf[:8], binary.LittleEndian.Uint64(buf[:8])|lowerCase)
	binary.LittleEndian.PutUint64(buf[8:], binary.LittleEndian.Uint64(buf[8:])|lowerCase)
	w := buf[:len(word)]
	switch len(w) {
	case 2, 3:
		return keywordOf3(w)
	case 4:
		return keywordOf4(w)
	case 5:
		return keywordOf5(w)
	case 6:
		return keywordOf6(w)
	case 7, 8:
		return keywordOf8(w)
	}
	return keywordOf12(w)
}

func keywordOf3(w []byte) keyword {
	switch string(w) {
	case "all":
		return kwAll
	case "and":
		return kwAnd
	case "as":
		return kwAs
	case "by":
		return kwBy
	case "do":
		return kwDo
	case "end":
		return kwEnd
	case "for":
		return kwFor
	case "key":
		return kwKey
	case "no":
		return kwNo
	case "not":
		return kwNot
	case "on":
		return kwOn
	case "or":
		return kwOr
	case "set":
		return kwSet
	case "to":
		return kwTo
	}
	return kwNone
}

func keywordOf4(w []byte) keyword {
	switch string(w) {
	case "call":
		return kwCall
	case "copy":
		return kwCopy
	case "cube":
		return kwRollup
	case "drop":
		return kwDrop
	case "from":
		return kwFrom
	case "full", "left":
		return kwJoinKind
	case "hold":
		return kwHold
	case "into":
		return kwInto
	case "join":
		return kwJoin
	case "like":
		return kwLike
	case "lock":
		return kwLock
	case "sets":
		return kwSets
	case "show":
		return kwShow
	case "with":
		return kwWith
	}
	return kwNone
}

func keywordOf5(w []byte) keyword {
	switch string(w) {
	case "abort":
		return kwAbort
	case "alter":
		return kwAlter
	case "begin":
		return kwBegin
	case "chain":
		return kwChain
	case "close":
		return kwClose
	case "cross", "inner", "outer", "right":
		return kwJoinKind
	case "group":
		return kwGroup
	case "ilike":
		return kwLike
	case "merge":
		return kwMerge
	case "order":
		return kwOrder
	case "reset":
		return kwReset
	case "share":
		return kwShare
	case "start":
		return kwStart
	case "stdin":
		return kwStdio
	case "table":
		return kwTable
	}
	return kwNone
}

func keywordOf6(w []byte) keyword {
	switch string(w) {
	case "atomic":
		return kwAtomic
	case "binary":
		return kwBinary
	case "commit":
		return kwCommit
	case "create":
		return kwCreate
	case "cursor":
		return kwCursor
	case "delete":
		return kwDelete
	case "insert":
		return kwInsert
	case "rollup":
		return kwRollup
	case "schema":
		return kwSchema
	case "select":
		return kwSelect
	case "stdout":
		return kwStdio
	case "system":
		return kwSystem
	case "update":
		return kwUpdate
	case "vacuum":
		return kwVacuum
	case "values":
		return kwValues
	}
	return kwNone
}

func keywordOf8(w []byte) keyword {
	switch string(w) {
	case "analyse", "analyze":
		return kwAnalyze
	case "cluster":
		return kwCluster
	case "database":
		return kwDatabase
	case "declare":
		return kwDeclare
	case "discard":
		return kwDiscard
	case "distinct":
		return kwDistinct
	case "execute":
		return kwExecute
	case "explain":
		return kwExplain
	case "function":
		return kwFunction
	case "grouping":
		return kwGrouping
	case "natural":
		return kwJoinKind
	case "operator":
		return kwOperator
	case "prepare":
		return kwPrepare
	case "prepared":
		return kwPrepared
	case "refresh":
		return kwRefresh
	case "reindex":
		return kwReindex
	case "release":
		return kwRelease
	case "replace":
		return kwReplace
	case "rollback":
		return kwRollback
	case "varying":
		return kwVarying
	case "verbose":
		return kwVerbose
	}
	return kwNone
}

func keywordOf12(w []byte) keyword {
	switch string(w) {
	case "concurrently":
		return kwConcurrently
	case "constraints":
		return kwConstraints
	case "deallocate":
		return kwDeallocate
	case "materialized":
		return kwMaterialized
	case "ordinality":
		return kwOrdinality
	case "partition":
		return kwPartition
	case "procedure":
		return kwFunction
	case "publication":
		return kwPublication
	case "recursive":
		return kwRecursive
	case "savepoint":
		return kwSavepoint
	case "subscription":
		return kwSubscription
	case "tablesample":
		return kwTablesample
	case "tablespace":
		return kwTablespace
	case "transaction":
		return kwTransaction
	}
	return kwNone
}
