package fencing

// A Sighting is how one read of the lock service saw a lock. The read was
// linearizable, so it shows the lock as it was at Revision or later; by now it
// may be otherwise.
type Sighting struct {
	Holder   Token  // create revision of the holder's key, 0 if nobody held the lock
	LockKey  string // etcd key of the holder
	Revision int64  // header revision of the read
}

// Newer reports whether there was a holder after the one with the given token.
// Keys get their place by create revision, so that one is over for good.
func (s Sighting) Newer(than Token) bool { return s.Holder > than }

// Gone reports whether the key of the holder with the given token had been
// there and was no more. A key that is made anew has another create revision.
// A read from before the token's time tells nothing, nor does one from before
// its turn.
func (s Sighting) Gone(token Token) bool {
	return s.Newer(token) || s.Holder == 0 && s.Revision >= int64(token)
}
