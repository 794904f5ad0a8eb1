package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/core/failure"
)

// resource is what a request was about, for the hints of refusals.
type resource struct {
	topic string
	txnID string
	// need is the ACL operation that the request needs on the topic.
	need string
}

// classify turns an error of franz-go into a *failure.Error. An error that is
// classified already is returned as it is (Invariant 7).
func classify(op string, err error, r resource) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*failure.Error](err); ok {
		return err
	}
	if shards, ok := errors.AsType[*kadm.ShardErrors](err); ok && len(shards.Errs) > 0 {
		err = shards.Errs[0].Err
	}
	f := &failure.Error{Class: failure.Transient, Op: op, Err: err}
	switch {
	case isAny(err, kerr.TopicAuthorizationFailed):
		f.Class = failure.BrokerRefused
		f.Hint = fmt.Sprintf("grant the principal the ACL %s on topic %s", or(r.need, "Read, Write, Describe"), or(r.topic, "named above"))
	case isAny(err, kerr.TransactionalIDAuthorizationFailed):
		f.Class = failure.BrokerRefused
		f.Hint = fmt.Sprintf("grant the principal the ACLs Write and Describe on transactional id %s, best on the prefix transactional.id.prefix, or set snow.source.delivery=at_least_once", r.txnID)
	case isAny(err, kerr.GroupAuthorizationFailed):
		f.Class = failure.BrokerRefused
		f.Hint = "grant the principal the ACL Read on the group"
	case isAny(err, kerr.ClusterAuthorizationFailed):
		f.Class = failure.BrokerRefused
		f.Hint = "grant the principal the ACL " + or(r.need, "IdempotentWrite") + " on the cluster, or have the topic created by hand"
	case isAny(err, kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState):
		f.Class = failure.BrokerRefused
		f.Hint = "check kafka.sasl.mechanism, user and password"
	case isCertificate(err):
		f.Class = failure.BrokerRefused
		f.Hint = "check kafka.ssl.truststore.location and the broker's certificate"
	case isAlert(err):
		f.Class = failure.BrokerRefused
		f.Hint = "the broker asks for another certificate of this client: check kafka.ssl.keystore.location"
	case isAny(err, kerr.MessageTooLarge, kerr.RecordListTooLarge):
		f.Class = failure.Oversized
	case isAny(err, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InvalidTopicException):
		f.Class = failure.TopicRefused
		f.Hint = "create topic " + or(r.topic, "by hand") + ", or set topic.creation.enable=true"
	case isAny(err, kerr.InvalidTimestamp):
		f.Class = failure.TopicRefused
		f.Hint = fmt.Sprintf("raise message.timestamp.before.max.ms and message.timestamp.after.max.ms (an hour unless set) of topic %s: records carry the time of their row", r.topic)
	case isAny(err, kerr.OffsetMetadataTooLarge):
		f.Class = failure.Misconfigured
		f.Hint = "raise the brokers' offset.metadata.max.bytes to 1024 or more: commits carry what is under way"
	case isAny(err, kerr.InvalidTransactionTimeout):
		f.Class = failure.Misconfigured
		f.Hint = "lower snow.source.transaction.timeout.ms to the broker's transaction.max.timeout.ms"
	case isAny(err, kerr.InvalidConfig, kerr.InvalidPartitions, kerr.InvalidReplicationFactor, kerr.PolicyViolation):
		f.Class = failure.Misconfigured
		f.Hint = "check topic.creation.default.* and offset.storage.*"
	case isFence(err):
		f.Class = failure.OutcomeUnknown
	default:
		if _, ok := errors.AsType[*kgo.ErrFirstReadEOF](err); ok {
			f.Hint = "the broker closed the connection at once: check kafka.security.protocol and the SASL settings"
		} else if isContext(err) {
			f.Hint = "the time of the call ran out; see whether the brokers are reachable"
		}
	}
	return f
}

// isFence reports whether err is one of the errors that a fenced producer sees.
// None of them tells a takeover from a time-out of the transaction: they mean
// "outcome unknown: fence, then read the cursor" (spec: source, section 2).
func isFence(err error) bool {
	return isAny(err, kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidTxnState,
		kerr.InvalidProducerIDMapping, kerr.OperationNotAttempted, kerr.UnknownProducerID)
}

func isAuthorization(err error) bool {
	return isAny(err, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed,
		kerr.TransactionalIDAuthorizationFailed, kerr.GroupAuthorizationFailed)
}

func isMissing(err error) bool {
	return isAny(err, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID)
}

func isCertificate(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	_, ok := errors.AsType[x509.HostnameError](err)
	return ok
}

// isAlert reports whether the other side ended a TLS handshake because of our certificate.
// The type of the alert is not exported, and one without a certificate is "bad" to Java.
func isAlert(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	if !ok || e.Op != "remote error" || e.Err == nil {
		return false
	}
	text := e.Err.Error()
	return strings.Contains(text, "certificate") || strings.Contains(text, "handshake failure") || strings.Contains(text, "access denied")
}

func isAny(err error, targets ...*kerr.Error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

func misconfigured(op string, err error) error {
	return &failure.Error{Class: failure.Misconfigured, Op: op, Err: err}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
