//go:build !race

package fakesnow

const raceEnabled = false
