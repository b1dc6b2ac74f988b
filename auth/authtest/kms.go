package authtest

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"net/http"
	"strings"
)

// AddKMSKey creates a key, arn:<partition>:kms:<region>:<account>:key/<id>.
func (a *AWS) AddKMSKey(arn string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.masterKeys[arn] = random(32)
}

// kmsService is the API of KMS: Encrypt, Decrypt and GenerateDataKey with symmetric keys. It does not imitate aliases, key
// policies, grants and encryption contexts.
func (a *AWS) kmsService() service {
	s := &jsonService{aws: a, name: "kms", target: "TrentService", hosts: []string{"kms", "kms-fips"}}
	s.actions = map[string]func(*awsCall) (any, *awsError){
		"Encrypt":         (*awsCall).kmsEncrypt,
		"Decrypt":         (*awsCall).kmsDecrypt,
		"GenerateDataKey": (*awsCall).kmsGenerateDataKey,
	}
	return s.service()
}

type kmsInput struct {
	KeyID          string `json:"KeyId"`
	Plaintext      []byte
	CiphertextBlob []byte
	KeySpec        string
	NumberOfBytes  int
}

const symmetric = "SYMMETRIC_DEFAULT"

func (c *awsCall) kmsEncrypt() (any, *awsError) {
	var in kmsInput
	if err := c.read(&in); err != nil {
		return nil, err
	}
	arn, err := c.kmsKey(in.KeyID, "kms:Encrypt")
	if err != nil {
		return nil, err
	}
	return map[string]any{"KeyId": arn, "EncryptionAlgorithm": symmetric, "CiphertextBlob": c.seal(arn, in.Plaintext)}, nil
}

func (c *awsCall) kmsGenerateDataKey() (any, *awsError) {
	var in kmsInput
	if err := c.read(&in); err != nil {
		return nil, err
	}
	arn, err := c.kmsKey(in.KeyID, "kms:GenerateDataKey")
	if err != nil {
		return nil, err
	}
	size := map[string]int{"AES_256": 32, "AES_128": 16}[in.KeySpec]
	if size == 0 {
		size = in.NumberOfBytes
	}
	if size < 1 || size > 1024 {
		return nil, refuse(http.StatusBadRequest, "ValidationException", "Please specify either number of bytes or key spec.")
	}
	key := random(size)
	return map[string]any{"KeyId": arn, "Plaintext": key, "CiphertextBlob": c.seal(arn, key)}, nil
}

func (c *awsCall) kmsDecrypt() (any, *awsError) {
	var in kmsInput
	if err := c.read(&in); err != nil {
		return nil, err
	}
	invalid := refuse(http.StatusBadRequest, "InvalidCiphertextException", "")
	name, sealed, found := bytes.Cut(in.CiphertextBlob, []byte{0})
	if !found {
		return nil, invalid
	}
	arn, err := c.kmsKey(string(name), "kms:Decrypt")
	if err != nil {
		return nil, err
	}
	if in.KeyID != "" && !c.sameKey(in.KeyID, arn) {
		return nil, refuse(http.StatusBadRequest, "IncorrectKeyException",
			"The key ID in the request does not identify a CMK that can perform this operation.")
	}
	aead := c.aead(arn)
	if len(sealed) < aead.NonceSize() {
		return nil, invalid
	}
	plain, failed := aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], name)
	if failed != nil {
		return nil, invalid
	}
	return map[string]any{"KeyId": arn, "EncryptionAlgorithm": symmetric, "Plaintext": plain}, nil
}

// kmsKey returns the ARN of a key that the caller may use in this region. Keys of other accounts need their ARN.
func (c *awsCall) kmsKey(id, action string) (string, *awsError) {
	arn := id
	if !strings.HasPrefix(id, "arn:") {
		arn = "arn:" + c.partition + ":kms:" + c.region + ":" + c.caller.account + ":key/" + id
	}
	if c.aws.isDenied(c.caller.Identity, action) {
		return "", c.deniedJSON(http.StatusBadRequest, action, arn)
	}
	c.aws.mu.Lock()
	_, ok := c.aws.masterKeys[arn]
	c.aws.mu.Unlock()
	if !ok || !strings.HasPrefix(arn, "arn:"+c.partition+":kms:"+c.region+":") {
		return "", refuse(http.StatusBadRequest, "NotFoundException", "Key '%s' does not exist", arn)
	}
	return arn, nil
}

func (c *awsCall) sameKey(id, arn string) bool {
	return id == arn || strings.HasSuffix(arn, ":key/"+id)
}

func (c *awsCall) seal(arn string, plain []byte) string {
	aead := c.aead(arn)
	nonce := random(aead.NonceSize())
	blob := append([]byte(arn), 0)
	blob = append(blob, nonce...)
	return base64.StdEncoding.EncodeToString(aead.Seal(blob, nonce, plain, []byte(arn)))
}

func (c *awsCall) aead(arn string) cipher.AEAD {
	c.aws.mu.Lock()
	defer c.aws.mu.Unlock()
	block, err := aes.NewCipher(c.aws.masterKeys[arn])
	if err != nil {
		panic(err) // keys have 32 bytes
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return aead
}
