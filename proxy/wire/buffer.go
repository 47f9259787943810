package wire

import "sync"

// DefaultBuffer is what a Reader and a Writer hold for a socket while there is
// something to hold, in bytes.
const DefaultBuffer = 8 << 10

type buffer [DefaultBuffer]byte

// buffers are those that no socket holds at the moment. What is in them means
// nothing.
var buffers = sync.Pool{New: func() any { return new(buffer) }}

func takeBuffer() *buffer { return buffers.Get().(*buffer) }

func giveBuffer(b *buffer) { buffers.Put(b) }
