package auth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth/provider"
)

// In a pod, the API server's audiences are known from the pod's own token,
// whatever they were set to.
func TestAudiencesOfThePodsOwnToken(t *testing.T) {
	jwt := func(audience string) string {
		claims := fmt.Sprintf(`{"sub":"system:serviceaccount:ns:sa","aud":[%q],"exp":%d}`, audience,
			time.Now().Add(time.Hour).Unix())
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	own := filepath.Join(t.TempDir(), "token")
	get := func(audience string) error {
		_, err := GetAccessToken(t.Context(), keyProvider{name: "p"}, WithAudiences(audience),
			WithPolicy(Policy{AllowAnyAudience: true, ownTokenFile: own}),
			WithSubjectToken(NewStaticTokenSource(jwt(audience)),
				corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa"}}))
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
			if !errors.Is(err, tc.reason) ||
				tc.reason == ErrDenied && !strings.Contains(err.Error(), "good for the API server") {
				t.Errorf("got %v, want %q", err, tc.reason)
			}
		})
	}
}

// Root may read every file, so the test does not depend on the file system.
func TestCauseOfAnUnreadableTokenFile(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want provider.Cause
	}{
		"permission denied": {&fs.PathError{Op: "open", Path: "token", Err: fs.ErrPermission},
			provider.CauseTokenFileForbidden},
		"missing": {&fs.PathError{Op: "open", Path: "token", Err: fs.ErrNotExist}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var e *Error
			if err := (fileTokenSource{"token"}).unreadable(tc.err); !errors.As(err, &e) || e.Cause != tc.want {
				t.Errorf("got %v", err)
			}
		})
	}
}
