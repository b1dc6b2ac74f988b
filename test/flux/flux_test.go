package flux_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// A bucket that is reconciled again after some time gets a credential that is
// valid for that long.
func TestRemainingLifetime(t *testing.T) {
	const noMinimum = "--token-minimum-lifetime=0"
	for name, row := range map[string]struct {
		lifetime, again time.Duration
		both, port      []string // flags of both versions, and of the port
		before, after   time.Duration
	}{
		"half of an hour": {lifetime: time.Hour, again: 30 * time.Minute, before: 30 * time.Minute,
			after: 30 * time.Minute},
		"after 80 %": {lifetime: time.Hour, again: 49 * time.Minute, before: time.Hour,
			after: 11 * time.Minute},
		"less than ten minutes left": {lifetime: time.Hour, again: 51 * time.Minute, before: time.Hour,
			after: time.Hour},
		"no minimum": {lifetime: time.Hour, again: 59 * time.Minute, port: []string{noMinimum},
			before: time.Hour, after: time.Minute},
		"no minimum, half a minute left": {lifetime: time.Hour, again: 59*time.Minute + 31*time.Second,
			port: []string{noMinimum}, before: time.Hour, after: time.Hour},
		"the minimum of Flux": {lifetime: time.Hour, again: 49 * time.Minute,
			port: []string{"--token-minimum-lifetime=12m"}, before: time.Hour, after: time.Hour},
		"ten minutes, 3/4 are left": {lifetime: 10 * time.Minute, again: 149 * time.Second, before: 451 * time.Second,
			after: 451 * time.Second},
		"ten minutes, less than 3/4 left": {lifetime: 10 * time.Minute, again: 151 * time.Second, before: 449 * time.Second,
			after: 10 * time.Minute},
		"ten minutes, no minimum": {lifetime: 10 * time.Minute, again: 8*time.Minute + time.Second,
			port: []string{noMinimum}, before: 10 * time.Minute, after: 119 * time.Second},
		"cached for five minutes, four": {lifetime: time.Hour, again: 4 * time.Minute,
			both: []string{"--token-cache-max-duration=5m"}, before: 56 * time.Minute, after: 56 * time.Minute},
		"cached for five minutes, six": {lifetime: time.Hour, again: 6 * time.Minute,
			both: []string{"--token-cache-max-duration=5m"}, before: time.Hour, after: time.Hour},
		"cached for a duration of nothing": {lifetime: time.Hour, again: time.Minute,
			both: []string{"--token-cache-max-duration=0"}, before: time.Hour, after: 59 * time.Minute},
		"cached for two hours": {lifetime: 4 * time.Hour, again: 61 * time.Minute,
			both: []string{"--token-cache-max-duration=2h"}, before: 4 * time.Hour, after: 4 * time.Hour},
		"cache off": {lifetime: time.Hour, again: time.Minute,
			both: []string{"--token-cache-max-size=0"}, before: time.Hour, after: time.Hour},
		"negative size of the cache": {lifetime: time.Hour, again: time.Minute,
			both: []string{"--token-cache-max-size=-1"}, before: time.Hour, after: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			remaining := func(start startFunc, flags ...string) (got time.Duration) {
				w := newCloudAndCluster(t)
				synctest.Test(t, func(t *testing.T) {
					w.setSessions(row.lifetime)
					c := start(t, w, flags...)
					run(t, c.bucket, bucketKey)
					time.Sleep(row.again)
					run(t, c.bucket, bucketKey)
					got = w.remaining(t, c.accessKey)
				})
				return got
			}
			if got := remaining(newBefore, row.both...); got != row.before {
				t.Errorf("fluxcd/pkg/auth: %s, not %s", got, row.before)
			}
			if got := remaining(newAfter, append(row.both, row.port...)...); got != row.after {
				t.Errorf("workloadid: %s, not %s", got, row.after)
			}
		})
	}
}
