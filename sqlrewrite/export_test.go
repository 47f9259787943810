package sqlrewrite

// A Piece is a token that tests compare with PostgreSQL's scanner: a string
// constant ('s'), a quoted identifier ('"') or one of ( ) , ;
type Piece struct {
	What       byte
	Start, End int
}

// Pieces lexes text.
func Pieces(text []byte, o Options) ([]Piece, error) {
	lex := lexer{text: text, opts: o}
	var all []Piece
	for {
		t := lex.next()
		switch t.kind {
		case kindEnd:
			return all, lex.err
		case kindString, kindEscapeString, kindUnicodeString, kindBitString, kindDollarString:
			all = append(all, Piece{'s', int(t.start), int(t.end)})
		case kindQuoted, kindUnicodeQuoted:
			all = append(all, Piece{'"', int(t.start), int(t.end)})
		case kindOpen, kindClose, kindComma, kindSemicolon:
			all = append(all, Piece{text[t.start], int(t.start), int(t.end)})
		}
	}
}
