// Package check decides by a recorded history whether fenceproxy kept its
// promise: one checker for each invariant that a history can show, and
// porcupine for all of a key's operations together. Every checker says how much
// it has judged, and of what is wrong the shortest piece of the history that
// proves it.
//
// It is pure: a history in, a report out. What a checker takes for granted is
// said at each; those that need no clock are said to need none.
package check
