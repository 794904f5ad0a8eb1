//go:build race

package fakesnow

const raceEnabled = true
