package bootstrap

import (
	"encoding/json"
	"errors"
	"testing"

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
