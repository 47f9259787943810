// Package history is what a run of workers under faults leaves behind: what
// each of them asked and was answered, who held each lock by etcd's own word,
// which faults were at work when, and the tables at the end.
//
// Every process writes a file of its own with a Recorder, one line of JSON as
// an operation begins and one as it ends, so that a worker that is killed leaves
// an operation without an answer and not a gap. All times are of one clock,
// which all processes of a machine share. Load reads a folder of such files;
// package check decides by it whether the promise was kept.
//
// It is pure but for reading and writing those files: it knows no proxy, no
// etcd and no PostgreSQL. Workers of any language can write such files.
package history
