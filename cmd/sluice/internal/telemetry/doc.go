// Package telemetry distinguishes sampling from loss.
//
// When telemetry that counts events drops, either events were lost or the SDK has
// begun to sample. This package compares, day by day,
// what was stored with what it represents:
//
//   - raw: the sum of a measurement over the stored items of a custom event;
//   - weighted: the same with each item counted as often as it says that it
//     stands for, sum(value × itemCount);
//   - the sampling rate: 100 / avg(itemCount), in percent.
//
// Sampling lowers raw and leaves weighted where it was; loss lowers both.
//
// # Where items come from
//
// [Read] takes exports, CSV or JSON lines, with the columns of Application
// Insights (timestamp, name, itemCount, customMeasurements, customDimensions,
// sdkVersion) or of Log Analytics (TimeGenerated, Name, ItemCount, Measurements,
// Properties, SDKVersion), an item a row, or already summed up (time, items,
// raw, weighted, weight, suspect, sdk). Package loganalytics asks a workspace.
//
// Some exporters write itemCount 1 although they sampled, and leave the rate
// in the property microsoft.sample_rate (azure-sdk-for-net#59110). Such an item
// counts by that rate, and the report warns.
//
// # How it decides
//
// Days on which the sampling rate changed are found by the largest excursion of
// the cumulative sum (CUSUM). Its significance is tested by permutation: how often
// an excursion as large appears with the days in random order. Then each side of
// such a day is searched again.
//
// Loss is a lasting step in the logarithm of the weighted sum, beside a factor
// for each day of the week. It is tested with a one-sided Student's t: most of
// the level goes to the days on which the rate changed, the rest, with
// Bonferroni's correction, to every other day. Holidays and single days that
// stand out (deleted residuals) take no part and are named. Where a steady drift
// explains the days better than a step, there is no verdict.
//
// How small a loss can be seen depends on how much the days differ. With days
// that vary by 5 %, two weeks before and one after, the step's standard error
// is 5 % × √(1/14 + 1/8) = 2.2 %: no test that gives one false alarm in a hundred
// can find a loss of 5 % more than half of the time. Therefore each verdict says
// what it can exclude and what it would have found, and "can't tell" is one of
// the verdicts.
//
// With a reference that was not sampled, such as how many events the hub held
// each day, the days' own variation cancels out: a lasting loss of half a percent
// shows, and so do single days that fall short by the tolerance.
package telemetry
