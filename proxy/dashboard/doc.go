// Package dashboard is the page on the admin port, which shows people what happens
// in a running proxy, and the Gate that says who may see anything of that port.
//
// The page is embedded in the program, and all of its text is this proxy's own: it
// loads nothing from elsewhere, and changes nothing. It reads the same live data as
// the console does. Keys and names come from strangers: they travel as JSON and are
// set as text, never as HTML. Nothing here holds up the proxy: how many streams there
// are, how much each is sent and how long a browser may take for it are bounded.
//
// It is called by cmd/fenceproxy, which puts it on the admin port.
package dashboard
