package bootstrap

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
)

// Discover trusts no cluster-info that the token has not signed.
func FuzzConfigMap(f *testing.F) {
	token, err := ParseToken("abc123.0123456789abcdef")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"data":{"kubeconfig":"k","jws-kubeconfig-abc123":"` + Sign([]byte("k"), token) + `"}}`))
	f.Add([]byte(`{"data":{"kubeconfig":"k","jws-kubeconfig-abc123":"eyJhbGciOiJub25lIn0.."}}`))
	f.Add([]byte(`{"data":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var configMap corev1.ConfigMap
		if json.Unmarshal(body, &configMap) != nil {
			return
		}
		a := &attempt{discovery: &discovery{token: token}, distrust: true}
		err := a.verify(configMap.Data)
		good := Sign([]byte(configMap.Data[bootstrapapi.KubeConfigKey]),
			token) == configMap.Data[bootstrapapi.JWSSignatureKeyPrefix+"abc123"]
		if (err == nil) != (good && configMap.Data[bootstrapapi.KubeConfigKey] != "") {
			t.Errorf("%q: %v", body, err)
		}
		if configMap.Data[bootstrapapi.JWSSignatureKeyPrefix+"abc123"] != "" &&
			configMap.Data[bootstrapapi.KubeConfigKey] != "" && !good && (err.likely != "" || !errors.Is(err, ErrSignature)) {
			t.Errorf("%q: a wrong signature is not final: %v", body, err)
		}
	})
}

// The patience for a token that has no signature begins anew after another
// cause, such as an API server that restarts.
func TestPatienceBeginsAnewAfterAnotherCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &attempt{discovery: &discovery{patience: time.Minute}}
		for i, step := range []struct {
			cause   Cause
			givesUp bool
		}{
			{CauseNotSignedForToken, false},
			{CauseServerStarting, false},
			{CauseNotSignedForToken, false},
			{CauseNotSignedForToken, false},
			{CauseNotSignedForToken, true},
		} {
			if got := a.givesUpToken(step.cause); got != step.givesUp {
				t.Errorf("attempt %d, %s: gives up is %t, want %t", i+1, step.cause, got, step.givesUp)
			}
			time.Sleep(30 * time.Second)
		}
	})
}
