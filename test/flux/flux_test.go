package flux_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// A bucket that is reconciled for the second time gets a credential with this much left.
func TestRemainingLifetime(t *testing.T) {
	for name, row := range map[string]struct {
		lifetime, age time.Duration
		args          []string // of the port
		before, after time.Duration
	}{
		"young":                                {lifetime: time.Hour, age: 30 * time.Minute, before: 30 * time.Minute, after: 30 * time.Minute},
		"after 80 %":                           {lifetime: time.Hour, age: 49 * time.Minute, before: time.Hour, after: 11 * time.Minute},
		"less than the minimum left":           {lifetime: time.Hour, age: 51 * time.Minute, before: time.Hour, after: time.Hour},
		"without a minimum":                    {lifetime: time.Hour, age: 59 * time.Minute, args: []string{"--token-minimum-lifetime=0"}, before: time.Hour, after: time.Minute},
		"without a minimum, seconds left":      {lifetime: time.Hour, age: 59*time.Minute + 40*time.Second, args: []string{"--token-minimum-lifetime=0"}, before: time.Hour, after: time.Hour},
		"minimum as of Flux":                   {lifetime: time.Hour, age: 49 * time.Minute, args: []string{"--token-minimum-lifetime=12m"}, before: time.Hour, after: time.Hour},
		"ten minutes, at most 3/4 count":       {lifetime: 10 * time.Minute, age: 2 * time.Minute, before: 8 * time.Minute, after: 8 * time.Minute},
		"ten minutes, a quarter has passed":    {lifetime: 10 * time.Minute, age: 3 * time.Minute, before: 7 * time.Minute, after: 10 * time.Minute},
		"a shorter --token-cache-max-duration": {lifetime: time.Hour, age: 6 * time.Minute, args: []string{"--token-cache-max-duration=5m"}, before: 54 * time.Minute, after: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, start func(*testing.T, *cloudAndCluster, ...string) *controller) {
				w := newCloudAndCluster(t)
				synctest.Test(t, func(t *testing.T) {
					w.shortenSessions(row.lifetime)
					c := start(t, w)
					run(t, c.bucket, bucketKey)
					time.Sleep(row.age)
					run(t, c.bucket, bucketKey)
					t.Log(w.remaining(t, c.accessKey))
				})
			})
		})
	}
}
