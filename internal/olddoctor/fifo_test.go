//go:build unix

package doctor_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// No file that nobody writes to holds a run up, and none passes.
func TestFilesThatDoNotAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		use   func(w *world, path string)
		check string
		want  doctor.Result
	}{
		"token file": {func(w *world, path string) { w.config.TokenFile = path }, "token-file", doctor.Fail},
		"token file, beside the token": {func(w *world, path string) {
			w.config.Token = w.sign(func(claims map[string]any) { claims["exp"] = time.Now().Add(-time.Hour).Unix() })
			w.config.TokenFile = path
		}, "token-file", doctor.Fail},
		"token file of the pod": {func(w *world, path string) {
			w.config.InPod, w.config.ServiceAccount = true, client.ObjectKey{}
			w.env["AWS_WEB_IDENTITY_TOKEN_FILE"], w.env["AWS_ROLE_ARN"] = path, roleARN
		}, "token-file", doctor.Fail},
		"authorization of the helper": {func(w *world, path string) {
			w.config.Helper, w.config.HelperTokenFile = "http://127.0.0.1:1/", path
		}, "helpers", doctor.Fail},
		"token of the kubeconfig": {func(w *world, path string) {
			w.config.RESTConfig = &rest.Config{Host: w.api().Host, BearerTokenFile: path}
		}, "cluster-issuer", doctor.Unknown},
		"authority of the kubeconfig": {func(w *world, path string) {
			w.config.RESTConfig = &rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAFile: path}}
		}, "cluster-issuer", doctor.Unknown},
	} {
		t.Run(name, func(t *testing.T) { unanswering(t, newWorld(t, "aws"), tt.use, tt.check, tt.want) })
	}
	t.Run("Google's file", func(t *testing.T) {
		unanswering(t, newWorld(t, "gcp"), func(w *world, path string) {
			w.config.InPod, w.env["GOOGLE_APPLICATION_CREDENTIALS"] = true, path
		}, "source", doctor.Fail)
	})
}

func unanswering(t *testing.T, w *world, use func(*world, string), check string, want doctor.Result) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	use(w, path)
	w.config.Timeout = 10 * time.Second
	done := make(chan *doctor.Report, 1)
	go func() { done <- w.run() }()
	select {
	case report := <-done:
		if f := report.Of(check); f.Result != want || f.Remedy == "" && want != doctor.Skip {
			t.Errorf("%+v", f)
		}
	case <-time.After(w.config.Timeout + time.Minute):
		t.Error("it has not returned")
		if writer, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			_ = syscall.Close(writer)
		}
	}
}

// What reads a profile without a context is given up when its time is over, and the rest is examined.
func TestCallsThatDoNotEnd(t *testing.T) {
	w := newWorld(t, "aws")
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		w.inBubble(t)
		w.write(w.sign(nil))
		w.config.Timeout = 500 * time.Millisecond
		w.config.Trust = stuckTrust{release}
		start := time.Now()
		report := w.run()
		if took := time.Since(start); took > w.config.Timeout {
			t.Errorf("took %s", took)
		}
		if f := report.Of("trust-anchor"); f.Result != doctor.Unknown || !strings.Contains(f.Message, "what AWS trusts") {
			t.Errorf("%+v", f)
		}
	})
}

type stuckTrust struct{ release chan struct{} }

func (s stuckTrust) ReadTrust(context.Context, doctor.TrustQuery) (*doctor.Trust, error) {
	<-s.release
	return nil, errors.New("too late")
}
