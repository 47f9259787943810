package embedded

import "errors"

// Of Etcd.Start. Each comes wrapped with the folder or the address.
var (
	// ErrDirLocked: another etcd runs on the data folder.
	ErrDirLocked = errors.New("data folder is in use by another etcd")
	// ErrAddrInUse: something else listens on the address.
	ErrAddrInUse = errors.New("address is taken")
)
