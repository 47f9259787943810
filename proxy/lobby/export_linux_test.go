package lobby

// Waits reports whether somebody waits to read or to write.
func (c *Conn) Waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reading.waiting || c.writing.waiting
}
