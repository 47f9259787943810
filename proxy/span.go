package proxy

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

var errSpan = errors.New("a time such as 30s, 2 min or 1h30m is expected")

// parseSpan reads a length of time as fence.acquire takes it: numbers with units
// from milliseconds to hours, or seconds alone. They mean what they mean in an
// interval of PostgreSQL's.
func parseSpan(text string) (time.Duration, error) {
	rest := strings.TrimSpace(text)
	if seconds, err := strconv.ParseFloat(rest, 64); err == nil {
		return spanOf(seconds, time.Second)
	}
	var sum time.Duration
	for rest != "" {
		n := strings.IndexFunc(rest, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
		if n <= 0 {
			return 0, errSpan
		}
		number, err := strconv.ParseFloat(rest[:n], 64)
		if err != nil {
			return 0, errSpan
		}
		rest = strings.TrimLeft(rest[n:], " ")
		word := rest
		if end := strings.IndexFunc(rest, func(r rune) bool { return r < 'a' || r > 'z' }); end >= 0 {
			word = rest[:end]
		}
		unit := unitOf(word)
		if unit == 0 {
			return 0, errSpan
		}
		part, err := spanOf(number, unit)
		if err != nil {
			return 0, err
		}
		sum += part
		if rest = strings.TrimLeft(rest[len(word):], " "); sum > longestSpan {
			return 0, errSpan
		}
	}
	if sum == 0 && strings.TrimSpace(text) == "" {
		return 0, errSpan
	}
	return sum, nil
}

// longestSpan keeps sums of parts from overflowing.
const longestSpan = 10000 * time.Hour

func spanOf(number float64, unit time.Duration) (time.Duration, error) {
	if !(number >= 0 && number <= float64(longestSpan/unit)) {
		return 0, errSpan
	}
	return time.Duration(number * float64(unit)), nil
}

func unitOf(word string) time.Duration {
	switch word {
	case "ms", "msec", "msecs", "millisecond", "milliseconds":
		return time.Millisecond
	case "s", "sec", "secs", "second", "seconds":
		return time.Second
	case "m", "min", "mins", "minute", "minutes":
		return time.Minute
	case "h", "hr", "hrs", "hour", "hours":
		return time.Hour
	}
	return 0
}
