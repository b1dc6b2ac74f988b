package auth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth/provider"
)

// In a pod, the API server's audiences are known from the pod's own token, whatever they were set to.
func TestAudiencesOfThePodsOwnToken(t *testing.T) {
	jwt := func(audience string) string {
		claims := fmt.Sprintf(`{"sub":"system:serviceaccount:ns:sa","aud":[%q],"exp":%d}`, audience, time.Now().Add(time.Hour).Unix())
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	own := filepath.Join(t.TempDir(), "token")
	get := func(audience string) error {
		_, err := GetAccessToken(t.Context(), keyProvider{name: "p"}, WithAudiences(audience),
			WithPolicy(Policy{AllowAnyAudience: true, ownTokenFile: own}),
			WithSubjectToken(NewStaticTokenSource(jwt(audience)), corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa"}}))
		return err
	}
	for name, tc := range map[string]struct {
		content string
		reason  provider.Reason
	}{
		"the same audience": {jwt("https://api.internal.example") + "\n", ErrDenied},
		"another audience":  {jwt("https://another.example"), ErrUnavailable}, // from the provider: it was asked
		"not a token":       {"opaque", ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(own, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			err := get("https://api.internal.example")
			if !errors.Is(err, tc.reason) || tc.reason == ErrDenied && !strings.Contains(err.Error(), "good for the API server") {
				t.Errorf("got %v, want %q", err, tc.reason)
			}
		})
	}
}

// shifted returns start on clocks that have moved differently since then.
func shifted(t *testing.T, start time.Time, wall, monotonic time.Duration) time.Time {
	t.Helper()
	later := start.Add(wall)
	*(*int64)(unsafe.Add(unsafe.Pointer(&later), 8)) += int64(monotonic - wall) // the monotonic clock of time.Time
	if later.Sub(start) != monotonic || later.Round(0).Sub(start.Round(0)) != wall {
		t.Fatal("time.Time has another layout now")
	}
	return later
}

// A suspended machine stops the monotonic clock, and the wall clock can be set back. Neither makes an old token valid.
func TestHeldTokenHoldsOnBothClocks(t *testing.T) {
	obtained := time.Now()
	f := &tokenFlight{obtained: obtained, expiry: obtained.Add(time.Hour).Round(0)}
	h := &heldToken{next: f}
	h.finish(f)
	for name, tc := range map[string]struct {
		wall, monotonic time.Duration
		usable, fresh   bool
	}{
		"fresh":                               {47 * time.Minute, 47 * time.Minute, true, true},
		"due":                                 {49 * time.Minute, 49 * time.Minute, true, false},
		"expired":                             {time.Hour, time.Hour, false, false},
		"suspended: only the wall clock":      {time.Hour, time.Minute, false, false},
		"set back: only the monotonic clock":  {time.Minute, time.Hour, false, false},
		"set back for long":                   {-24 * time.Hour, time.Hour, false, false},
		"due after a suspension":              {49 * time.Minute, time.Minute, true, false},
		"due although the wall clock is slow": {time.Minute, 49 * time.Minute, true, false},
	} {
		now := shifted(t, obtained, tc.wall, tc.monotonic)
		if usable, fresh := h.last.usable(now, time.Time{}), before(now, h.renew); usable != tc.usable || fresh != tc.fresh {
			t.Errorf("%s: usable %t, fresh %t", name, usable, fresh)
		}
	}
}
