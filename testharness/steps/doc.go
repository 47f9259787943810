// Package steps breaks something at every step of what fenceproxy does. A step
// is one message between a client and a proxy, a proxy and PostgreSQL, or a proxy
// and etcd, in either direction, those of a claim's own connections among them.
// Links that take what is sent apart count the steps of a claim and of a write, in
// every form of either. Then the same is done again and again, and at each step
// in turn a link is cut, the proxy is killed, its sessions are ended in PostgreSQL,
// or the message is held up while the next holder takes over, by another proxy or the same; and
// for each two steps, the second while the worker or the next holder tries again.
// What package history records of it is judged by history/check.
//
// All of it is tests; real are PostgreSQL, etcd and the proxies.
package steps
