package provider_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
)

func TestTokenLifetime(t *testing.T) {
	const key = "example.com/expiration"
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        time.Duration
		refused     bool
	}{
		"missing":   {nil, 0, false},
		"an hour":   {map[string]string{key: "3600"}, time.Hour, false},
		"shortest":  {map[string]string{key: "600"}, 10 * time.Minute, false},
		"too short": {map[string]string{key: "599"}, 0, true},
		"too long":  {map[string]string{key: "4294967297"}, 0, true},
		"a word":    {map[string]string{key: "1h"}, 0, true},
		"empty":     {map[string]string{key: ""}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			sa := &corev1.ServiceAccount{}
			sa.Annotations = tc.annotations
			got, err := provider.Name("cloud").TokenLifetime(key, sa)
			if got != tc.want || errors.Is(err, auth.ErrMisconfigured) != tc.refused {
				t.Errorf("got %s, %v", got, err)
			}
			if tc.refused && (!strings.HasPrefix(err.Error(), "cloud: ") || !strings.Contains(err.Error(), key)) {
				t.Errorf("the error names neither provider nor annotation: %v", err)
			}
		})
	}
}

func TestCheckExpiry(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		expiry time.Time
		want   string
	}{
		"in an hour":  {now.Add(time.Hour), ""},
		"the longest": {now.Add(2 * time.Hour), ""},
		"missing":     {time.Time{}, "missing"},
		"now":         {now, "expired at 2026-01-02T03:04:05Z"},
		"too far":     {now.Add(2*time.Hour + time.Second), "later than any"},
	} {
		t.Run(name, func(t *testing.T) {
			err := provider.CheckExpiry(tc.expiry, now, 2*time.Hour)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

type token struct{}

func (*token) GetDuration() time.Duration { return time.Hour }

type otherToken struct{ token }

func TestAs(t *testing.T) {
	own := &token{}
	if got, err := provider.As[token](provider.Name("cloud"), own); err != nil || got != own {
		t.Errorf("got %v, %v", got, err)
	}
	for name, wrong := range map[string]auth.Token{"nothing": nil, "a nil": (*token)(nil),
		"another provider's": &otherToken{}} {
		got, err := provider.As[token](provider.Name("cloud"), wrong)
		if !errors.Is(err, auth.ErrMisconfigured) || got != nil || !strings.Contains(err.Error(), "auth.GetAccessToken") {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}
