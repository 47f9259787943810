// Package fault breaks things on purpose. A Link is a TCP connection between
// two parties that can be cut, silenced in one or both directions, slowed down
// and healed. Draw makes a Plan of faults from a seed, and a Plan carries itself
// out by what the caller says each kind of fault does.
//
// It knows none of the parties, and it never sleeps to wait for something: the
// only times in it are those of the plan.
package fault
