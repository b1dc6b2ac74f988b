package credentials

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// What was kept for a token in hand is not served once the token has expired.
func TestExpiredTokenIsNotServedFromDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := parsed(t, "--cache-dir="+filepath.Join(t.TempDir(), "cache"))
		claims := fmt.Sprintf(`{"sub":"system:serviceaccount:tenant-a:app","exp":%d}`, time.Now().Add(10*time.Minute).Unix())
		s, err := sourceOfToken(t.Context(), "e30."+base64.RawURLEncoding.EncodeToString([]byte(claims))+".c2ln", nil)
		if err != nil {
			t.Fatal(err)
		}
		refused := errors.New("expired")
		mints := 0
		get := func() error {
			_, err := id.get(t.Context(), s, wanted("access-token", func(context.Context, []auth.Option) (*credential, error) {
				if mints++; mints > 1 {
					return nil, refused
				}
				return bearer("t", time.Now().Add(time.Hour)), nil
			}))
			return err
		}
		for range 2 {
			if err := get(); err != nil || mints != 1 {
				t.Fatalf("after %d exchanges: %v", mints, err)
			}
		}
		time.Sleep(10 * time.Minute) // of the bubble
		if err := get(); !errors.Is(err, refused) {
			t.Errorf("the library was not asked: %v", err)
		}
	})
}

// Wid's own identity is used for the cluster that the flags name, not for one
// that only the kubeconfig names.
func TestClusterOfTheKubeconfig(t *testing.T) {
	const there = "https://prod.example:443"
	token := []string{"--token-file=x"}
	for name, tc := range map[string]struct {
		args    []string
		flags   target
		ca      string
		code    int // 0: allowed
		address string
		wantCA  string
	}{
		"own, no flag":             {nil, target{}, "", cli.ExitUsage, "", ""},
		"own, its resource":        {nil, target{resource: "c"}, "", 0, there, ""},
		"own, its resource and CA": {nil, target{resource: "c"}, "pem", cli.ExitUsage, "", ""},
		"own, all":                 {nil, target{resource: "c", address: there}, "pem", 0, there, "pem"},
		"own, its address": {nil, target{address: "https://Prod.example"}, "", 0, "https://Prod.example",
			"kubeconfig"},
		"own, another address":   {nil, target{address: "https://x.example"}, "", cli.ExitDenied, "", ""},
		"token, no flag":         {token, target{}, "", cli.ExitDenied, "", ""},
		"token, CA":              {token, target{}, "pem", cli.ExitUsage, "", ""},
		"token, resource and CA": {token, target{resource: "c"}, "pem", cli.ExitUsage, "", ""},
		"token, name":            {token, target{name: "c"}, "", 0, there, ""},
		"token, its address":     {token, target{address: there}, "", 0, there, "kubeconfig"},
		"token, another address": {token, target{address: "https://x.example"}, "", cli.ExitDenied, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ca, err := parsed(t, tc.args...).checkCluster(&tc.flags, []byte(tc.ca),
				&plugin.ExecCluster{Server: there, CAData: []byte("kubeconfig")}, false)
			if tc.code != 0 {
				if err == nil || cli.ExitCode(t.Context(), err) != tc.code {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || tc.flags.address != tc.address || string(ca) != tc.wantCA {
				t.Errorf("got %q, %q, %v", tc.flags.address, ca, err)
			}
		})
	}
}

// The message names the annotations that there are.
func TestDetectOfAServiceAccountWithoutACloud(t *testing.T) {
	for want, annotations := range map[string]map[string]string{
		`ServiceAccount "a/b" has no annotations: annotate it`:                                   nil,
		`ServiceAccount "a/b" has no annotation of a cloud, but ["x" "y"]: annotate it, or name`: {"y": "", "x": ""},
	} {
		err := parsed(t).Detect(
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", Annotations: annotations}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestACredentialPrintsNoSecret(t *testing.T) {
	c := &credential{GitCredential: plugin.GitCredential{Password: "hunter2hunter2"}}
	if text := fmt.Sprintf("%v %+v %#v %s", c, c, c, c); strings.Contains(text, "hunter2") {
		t.Error(text)
	}
}

func TestRemedyByCause(t *testing.T) {
	for name, tc := range map[string]struct {
		cause provider.Cause
		want  string
	}{
		"another cause": {provider.CauseTokenExpired, "denied: no; do this (--audience)"},
	} {
		t.Run(name, func(t *testing.T) {
			err := &auth.Error{Reason: auth.ErrDenied, Message: "no", Cause: tc.cause, Remedy: "do this",
				Option: "auth.Policy.Audiences"}
			if got := parsed(t).InTermsOfFlags(err).Error(); got != tc.want {
				t.Errorf("got %q", got)
			}
		})
	}
}

// The secret of an OAuth client may come from another program, though both the
// cache and the exchange look at it.
func TestClientSecretFromAPipe(t *testing.T) {
	id := parsed(t, "--exchange-client-id=x", "--exchange-client-secret-file="+pipeWith(t, "hunter2"))
	id.key(&source{}, wanted("", nil))
	if secret, err := id.clientSecret(); err != nil || string(secret) != "hunter2" {
		t.Errorf("%q, %v", secret, err)
	}
}

// pipeWith is a name for a pipe that holds that.
func pipeWith(t *testing.T, content string) string {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	if _, err := in.WriteString(content); err != nil || in.Close() != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/dev/fd/%d", out.Fd())
}

const (
	azureTenant = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	prodARN     = "arn:aws:eks:eu-central-1:123456789012:cluster/prod"
)
