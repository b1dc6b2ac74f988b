package reading

import (
	"cmp"
	"net/http"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/redact"
)

// Question describes one request, for the findings about its failure. All of them are Unknown. The zero Finding stands for
// success in this package and the packages that use it.
type Question struct {
	// Service is the service that is asked: "AWS IAM".
	Service string
	// Right is the right that the request needs, Resource the object that it needs the right on.
	Right, Resource string
	// Login is the principal that asks. Empty: it is not known.
	Login string
	// Show is a command that shows the same.
	Show string
	// LogIn is the command that renews the login.
	LogIn string
	// Secrets are removed from what the service says.
	Secrets []string
}

// Refused returns the finding of a login without the right.
func (q *Question) Refused(status int, code string) doctor.Finding {
	remedy := doctor.Do("Grant "+q.Right+" on "+q.Resource+", or ask someone who can run:", q.Show)
	return q.with(doctor.Unclear(remedy, "%s refuses %s to %s.", q.Service, q.Right, cmp.Or(q.Login, "your login")), status, code)
}

// LoginRefused returns the finding of a login that the service does not accept.
func (q *Question) LoginRefused(status int, code string) doctor.Finding {
	return q.with(doctor.Unclear(doctor.Do("Log in again:", q.LogIn), "%s does not accept your login.", q.Service), status, code)
}

// Unusable returns the finding of another failure. message is free of secrets and of the answer.
func (q *Question) Unusable(err error, status int, code, message string) doctor.Finding {
	e := &auth.Error{Reason: auth.ErrUnavailable, Err: err, StatusCode: status, Code: redact.Text(code, q.Secrets...), Message: message}
	if status == http.StatusTooManyRequests {
		e.Reason = auth.ErrThrottled
	}
	return doctor.Refusal(q.Service, e)
}

// Strange returns the finding of an answer that lacks what was asked for.
func (q *Question) Strange() doctor.Finding {
	return q.Unusable(nil, 0, "", "the answer lacks what was asked for")
}

func (q *Question) with(f doctor.Finding, status int, code string) doctor.Finding {
	f.StatusCode, f.Code = status, redact.Text(code, q.Secrets...)
	return f
}

// NoLogin returns the finding of a person without a login. The texts of SDKs repeat files and answers, so show is a command that
// shows the reason.
func NoLogin(cloud, logIn, show string) doctor.Finding {
	return doctor.Unclear(doctor.Do("Log in with an account that may read what "+cloud+" trusts:", logIn, show),
		"This machine has no usable login for %s.", cloud)
}

// Again returns the finding of the second check after a failure to log in. The first has the remedy.
func Again(cloud string) doctor.Finding {
	return doctor.Unclear(doctor.Remedy{}, "The doctor could not ask %s, as the check before says.", cloud)
}

// ReadAs adds the login to what was read with it.
func ReadAs(login string, f doctor.Finding) doctor.Finding {
	if login == "" {
		return f
	}
	return f.Detail("read as", login)
}

// NotInFile returns the finding of a file that lacks a document, with the command that adds it.
func NotInFile(what, command string) doctor.Finding {
	return doctor.Unclear(doctor.Do("Add it to the file:", command+" >> trust.json"), "The trust file does not hold %s.", what)
}
