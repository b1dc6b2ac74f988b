package azblob

import (
	"encoding/xml"
	"net/http"
	"strings"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/transport"
)

// errorCode is the header with the code of a refusal. The others are the codes with a meaning for a Store.
const (
	errorCode       = "x-ms-error-code"
	notFound        = "BlobNotFound"
	conditionNotMet = "ConditionNotMet"
	alreadyExists   = "BlobAlreadyExists"
)

// refused explains an answer that is no success, by status and code.
func refused(operation string, answer transport.Answer, token string) error {
	e := self.Refused(operation, answer)
	var body struct{ Code, Message string }
	code := answer.Header.Get(errorCode)
	e.Code, e.Message = provider.Redact(code, token), "the answer is not one of Blob storage"
	if code != "" && xml.Unmarshal(answer.Body, &body) == nil {
		// The request ID and the time after it change with each try, and conditions hold the text.
		text, _, _ := strings.Cut(body.Message, "RequestId:")
		e.Message = provider.Redact(strings.TrimSpace(text), token)
	}
	switch {
	case answer.Status/100 == 3:
		e.Message = "it answers with a redirect, which is not followed"
	case code == "ContainerNotFound":
		e.Reason, e.Remedy = provider.ErrMisconfigured, "create the container; \"az storage blob service-properties update --static-website\" creates $web"
	case code == "AuthorizationPermissionMismatch":
		e.Reason, e.Remedy = provider.ErrDenied, "assign the role Storage Blob Data Contributor on the container"
	case code == "AuthorizationFailure":
		e.Reason, e.Remedy = provider.ErrDenied, "let this network through the firewall of the storage account"
	case code != "" && (answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden):
		e.Reason, e.Remedy = provider.ErrDenied, "check that the identity belongs to the tenant of the storage account"
	case code == "LeaseIdMissing":
		e.Reason, e.Remedy = provider.ErrMisconfigured, "break the lease of the blob"
	case answer.Status == http.StatusTooManyRequests, code == "ServerBusy":
		e.Reason = provider.ErrThrottled
	}
	return e
}
