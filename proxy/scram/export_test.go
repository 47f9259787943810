package scram

// SetNonce makes the server's nonce known, for published vectors.
func (s *Server) SetNonce(nonce string) { s.nonce = nonce }

// Doom makes a Server with a real secret fail as one with a mock secret does.
func (s *Server) Doom() { s.doomed = true }

// SetNonce makes the client's name and nonce known, for published vectors.
func (c *Client) SetNonce(user, nonce string) { c.user, c.nonce = user, nonce }

// Prepare is SASLprep.
func Prepare(password string) string { return prepare(password) }
