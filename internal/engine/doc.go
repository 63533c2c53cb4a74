// Package engine holds what the rooms of the engine share: the settings, faults, limits, and the
// guards around code of others.
//
// The rooms, in folders of it, import downwards only:
//
//	group                     who gets which partition: acquisition, balance, renewals
//	batch   stream   replay   how a partition's events take effect: one worker each
//	partition                 one held partition: lease, claim, open, read, stalls, hooks
//
// Package sluice puts a group and a delivery together.
package engine
