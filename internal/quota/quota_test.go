package quota_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/workloadid/workloadid/internal/quota"
)

// step reserves or, with a negative n, releases.
type step struct {
	key  string
	n    int
	fits bool
}

func TestBudget(t *testing.T) {
	for name, steps := range map[string][]step{
		"one key stays below its share": {{"a", 3, true}, {"a", 1, false}, {"b", 1, true}},
		"all keys stay below the bound": {{"a", 3, true}, {"b", 2, true}, {"c", 1, false}},
		"what is released fits again":   {{"a", 3, true}, {"a", -1, true}, {"a", 1, true}, {"a", 1, false}},
		"a refusal counts nothing":      {{"a", 4, false}, {"a", 3, true}, {"b", 2, true}},
		"nothing always fits":           {{"a", 3, true}, {"b", 2, true}, {"a", 0, true}, {"c", 0, true}},
	} {
		t.Run(name, func(t *testing.T) {
			b := quota.Budget{Max: 5, Share: 3}
			for i, s := range steps {
				if s.n < 0 {
					b.Release(s.key, -s.n)
				} else if got := b.Reserve(s.key, s.n); got != s.fits {
					t.Errorf("step %d: %d of key %q fit: %t", i, s.n, s.key, got)
				}
			}
		})
	}
}

func TestReaderReservesWhatArrives(t *testing.T) {
	b := &quota.Budget{Max: 10, Share: 6}
	reader := func(key, body string) *quota.Reader {
		return &quota.Reader{Reader: strings.NewReader(body), Budget: b, Key: key}
	}
	fits, tooLong, late := reader("a", "123456"), reader("b", "1234567"), reader("a", "1")
	if read, err := io.ReadAll(fits); err != nil || string(read) != "123456" {
		t.Errorf("read %q, %v", read, err)
	}
	for name, r := range map[string]*quota.Reader{"too long": tooLong, "another of its key": late} {
		if read, err := io.ReadAll(r); !errors.Is(err, quota.ErrExceeded) || len(read) > 0 {
			t.Errorf("%s: read %q, %v", name, read, err)
		}
		r.Release()
	}
	fits.Release()
	fits.Release()
	if !b.Reserve("a", 6) || !b.Reserve("b", 4) || b.Reserve("c", 1) {
		t.Error("the budget does not hold what it held at first")
	}
}

func TestSlotsAreTakenInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots, order := make(quota.Slots, 1), make(chan int, 2)
		leave, err := slots.Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			go func() {
				leave, err := slots.Take(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				order <- i
				leave()
			}()
			synctest.Wait()
		}
		leave()
		if first, second := <-order, <-order; first != 0 || second != 1 {
			t.Errorf("%d before %d", first, second)
		}
	})
}

func TestWaitForASlotEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := make(quota.Slots).Take(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestMapKeepsAValueAsLongAsItIsUsed(t *testing.T) {
	made := 0
	m := quota.Map[string, *int]{New: func() *int { made++; return &made }}
	_, leaveFirst := m.Use("a")
	_, leaveSecond := m.Use("a")
	_, leaveOther := m.Use("b")
	if made != 2 || m.Len() != 2 {
		t.Errorf("%d values made, %d keys", made, m.Len())
	}
	leaveFirst()
	leaveOther()
	if m.Len() != 1 {
		t.Errorf("%d keys, want the one in use", m.Len())
	}
	leaveSecond()
	if _, leave := m.Use("a"); made != 3 {
		t.Errorf("%d values made after the last user has left", made)
	} else {
		leave()
	}
	if m.Len() != 0 {
		t.Errorf("%d keys, want none", m.Len())
	}
}

func TestConcurrentUsersShareTheValue(t *testing.T) {
	m := quota.Map[int, quota.Slots]{New: func() quota.Slots { return make(quota.Slots, 1) }}
	held, b := 0, quota.Budget{Max: 1, Share: 1}
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			slots, leave := m.Use(0)
			defer leave()
			free, err := slots.Take(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer free()
			held++ // the race detector knows
			if !b.Reserve("x", 1) {
				t.Error("two hold the one slot")
			}
			b.Release("x", 1)
		})
	}
	all.Wait()
	if held != 100 || m.Len() != 0 {
		t.Errorf("%d held it, %d keys left", held, m.Len())
	}
}
