package provider_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/provider"
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
			got, err := provider.Name("cloud").TokenLifetime(key, sa, &auth.Options{})
			if got != tc.want || errors.Is(err, auth.ErrMisconfigured) != tc.refused {
				t.Errorf("got %s, %v", got, err)
			}
			if tc.refused && (!strings.HasPrefix(err.Error(), "cloud: ") || !strings.Contains(err.Error(), key)) {
				t.Errorf("the error names neither provider nor annotation: %v", err)
			}
		})
	}
}
