package aws_test

import (
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// The error comes before there is a client, and the SDK makes no exchange of
// its own.
func TestGetCredentialsProvider(t *testing.T) {
	w, p := newEnvironment(t), &aws.Provider{}
	cached := testenv.Cached(t, "tenant-a")
	_, err := p.GetCredentialsProvider(t.Context(), w.options("tenant-a", "unknown", cached)...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, `"tenant-a/unknown"`, "not found")
	creds, err := p.GetCredentialsProvider(t.Context(), w.options("tenant-a", "app", cached)...)
	if err != nil || w.Cloud.Calls("sts", "") != 1 {
		t.Fatalf("got %v after %d exchanges, want no error after one", err, w.Cloud.Calls("sts", ""))
	}
	if got, err := creds.Retrieve(t.Context()); err != nil || !got.HasKeys() || w.Cloud.Calls("sts", "") != 1 {
		t.Errorf("keys %t, %v after %d exchanges, want keys after one", got.HasKeys(), err, w.Cloud.Calls("sts", ""))
	}
}
