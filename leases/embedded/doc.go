// Package embedded is an etcd in this process, a single node on loopback without
// authentication: for development, demos and single machines. It stands apart from
// package leases so that programs that take locks don't have a server in them.
//
// Locks in it are only as available as the process. It keeps nothing on disk but its
// own folder, and takes no folder that another etcd works on.
package embedded
