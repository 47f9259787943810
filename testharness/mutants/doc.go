// Command mutants takes each protection of fenceproxy out, one at a time, and
// sees to it that the test which is named for it goes red. A mutant is a change
// to the source that is kept here as data; go build's -overlay puts it in the
// place of the file, so the tree is never touched.
//
// `make mutants` runs it. That the changes still fit the source, that the tests
// they name exist and that docs/proof.md tells of all of them is tested with
// every other test.
package main
