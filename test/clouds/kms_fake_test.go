package clouds_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/workloadid/workloadid/cloudtest"
)

// fakeKMS serves one key of AWS KMS at the host of its region: Encrypt, Decrypt
// and GenerateDataKey, for requests with a valid signature of an identity that
// allowed admits; nil admits all. It encrypts nothing: a ciphertext is the
// key's ARN and the plaintext.
func fakeKMS(cloud *cloudtest.Cloud, keyARN string, allowed func(role, action string) bool) {
	region := strings.Split(keyARN, ":")[3]
	cloud.Handle("kms."+region+".amazonaws.com", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		action := strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "TrentService.")
		id, err := cloud.AWS().VerifySignature(r, "kms", region)
		switch {
		case err != nil:
			answerKMS(w, http.StatusBadRequest, map[string]any{"__type": "UnrecognizedClientException", "message": err.Error()})
		case allowed != nil && !allowed(id.RoleARN, action):
			answerKMS(w, http.StatusBadRequest,
				map[string]any{"__type": "AccessDeniedException", "Message": "not authorized to perform: kms:" + action})
		default:
			serveKMS(w, r, keyARN, action)
		}
	}))
}

func serveKMS(w http.ResponseWriter, r *http.Request, keyARN, action string) {
	var in struct{ Plaintext, CiphertextBlob []byte }
	prefix := []byte(keyARN + " ")
	sealed := func(plain []byte) []byte { return append(bytes.Clone(prefix), plain...) }
	malformed := json.NewDecoder(r.Body).Decode(&in) != nil
	opened, own := bytes.CutPrefix(in.CiphertextBlob, prefix)
	key := make([]byte, 32)
	switch {
	case action == "Encrypt" && !malformed:
		answerKMS(w, http.StatusOK, map[string]any{"KeyId": keyARN, "CiphertextBlob": sealed(in.Plaintext)})
	case action == "Decrypt" && own:
		answerKMS(w, http.StatusOK, map[string]any{"KeyId": keyARN, "Plaintext": opened})
	case action == "GenerateDataKey" && !malformed:
		answerKMS(w, http.StatusOK, map[string]any{"KeyId": keyARN, "Plaintext": key, "CiphertextBlob": sealed(key)})
	default:
		answerKMS(w, http.StatusBadRequest, map[string]any{"__type": "InvalidCiphertextException"})
	}
}

func answerKMS(w http.ResponseWriter, status int, document map[string]any) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document) // a client that has gone needs no answer
}
