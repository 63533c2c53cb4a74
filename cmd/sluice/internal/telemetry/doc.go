// Package telemetry distinguishes sampling from loss.
//
// When telemetry that counts events drops, either events were lost or the SDK has
// begun to sample. This package compares, day by day,
// what was stored with what it represents:
//
//   - raw: the sum of a measurement over the stored items of a custom event;
//   - weighted: the same with each item counted as often as it stands for;
//   - the sampling rate: 100 × items / what they stand for, in percent.
//
// Sampling lowers raw and leaves weighted where it was; loss lowers both.
//
// # Where items come from
//
// [Read] takes exports, CSV or JSON lines, with the columns of Application
// Insights (timestamp, name, itemCount, customMeasurements, customDimensions,
// sdkVersion) or of Log Analytics (TimeGenerated, Name, ItemCount, Measurements,
// Properties, SDKVersion), an item a row, or already summed up (time, items,
// raw, weighted, weight, low, high, squares, suspect, sdk). Package loganalytics
// asks a workspace.
//
// An item stands for 100 / microsoft.sample_rate items where it has that rate and
// itemCount does not contradict it, else for itemCount, a whole number, so for half
// a one less or more. Exporters that sample but leave itemCount at 1 are believed
// in their rate (azure-sdk-for-net#59110); the report warns.
//
// # How it decides
//
// A change of the recorded sampling rate is a fact. It is reported, not tested.
//
// The weighted sums from the day of the largest change on are compared with those
// before, each weekday with itself. The interval of the ratio has three parts: noise
// of random events that are sampled at random, as large as the items make it; the
// variation of the days beyond that, estimated from the days (Student's t); and the
// rounding of itemCount. There is a loss only if all of it is below zero. Without a
// loss there, every other day that has a week on either side is tried, with
// Bonferroni's correction. Where a steady drift explains the days better than a step,
// there is no verdict.
//
// With a reference that was not sampled, such as how many events the hub held
// each day, the days' own variation cancels out: a lasting loss of half a percent
// shows, and so do single days that fall short by the tolerance.
package telemetry
