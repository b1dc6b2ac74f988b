package webhook_test

import (
	"bytes"
	"encoding/json"
	"testing"
)

// canonical decodes and encodes a document, so that no key is there twice: the API server sends none twice.
func canonical(raw []byte) (string, bool) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return "", false
	}
	encoded, err := json.Marshal(value)
	return string(encoded), err == nil
}

// Whatever the pod is, there is an answer, the patch applies, and a second call changes nothing.
func FuzzPod(f *testing.F) {
	for _, pod := range []string{
		`{"spec":{"containers":[{"name":"a"}]}}`,
		`{"spec":{"containers":[{"name":"a","env":null}],"initContainers":[{"name":"i","env":[{"name":"AWS_PROFILE"}]}],"volumes":[{"name":"iam-credentials-token"}]}}`,
		`{"metadata":{"annotations":{"iam.aws.k8s.io/redirect":"true","iam.aws.k8s.io/skip-containers":"a"}},"spec":{"containers":[{"name":"a"},{"name":"a","env":[{"name":"AWS_CONTAINER_AUTHORIZATION_TOKEN"}]}],"volumes":[{}]}}`,
		`{"Spec":{"Containers":[{"Name":"a"}]},"spec":null}`,
		`{"spec":{"serviceAccountName":"default","hostNetwork":true,"os":{"name":"windows"},"containers":[null]}}`,
		`{"spec":{"containers":[{"name":"a"}],"initContainers":[{"name":"iam-credentials-redirect","args":["redirect"]},{"name":"iam-credentials-proxy","env":[{"name":"AWS_CONTAINER_AUTHORIZATION_TOKEN","value":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}],"startupProbe":{},"restartPolicy":"Always"}]}}`,
	} {
		f.Add([]byte(pod))
	}
	h := newHandler(f, options(bind("b", "default", "a", "i")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		pod, ok := canonical(raw)
		if !ok {
			return
		}
		if response := admit(t, h, pod); response.Allowed && len(response.Patch) > 0 {
			inject(t, h, pod)
		}
	})
}
