package kafka

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/sha1" //nolint:gosec // PBKDF2 with HMAC-SHA-1 is what most PKCS#8 files are encrypted with
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
)

// PBES2 with PBKDF2 and AES-CBC is what Kafka's PEM keystores and openssl use for
// encrypted private keys (RFC 8018).
var (
	oidPBES2  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 13}
	oidPBKDF2 = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 12}

	pseudoRandom = map[string]func() hash.Hash{
		"":                    sha1.New, // the default of RFC 8018
		"1.2.840.113549.2.7":  sha1.New,
		"1.2.840.113549.2.9":  sha256.New,
		"1.2.840.113549.2.10": sha512.New384,
		"1.2.840.113549.2.11": sha512.New,
	}
	aesKeySizes = map[string]int{
		"2.16.840.1.101.3.4.1.2": 16, "2.16.840.1.101.3.4.1.22": 24, "2.16.840.1.101.3.4.1.42": 32,
	}
)

// maxIterations bounds the work that a key file can ask for.
const maxIterations = 10_000_000

type encryptedKey struct {
	Algorithm pkix.AlgorithmIdentifier
	Data      []byte
}

type pbes2 struct {
	Derivation, Encryption pkix.AlgorithmIdentifier
}

type pbkdf2Parameters struct {
	Salt       []byte
	Iterations int
	KeyLength  int                      `asn1:"optional"`
	PRF        pkix.AlgorithmIdentifier `asn1:"optional"`
}

// decryptKey returns text with its encrypted private key, if it has one, in plain.
func decryptKey(text []byte, password string) ([]byte, error) {
	var plain bytes.Buffer
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if _, legacy := block.Headers["DEK-Info"]; legacy {
			return nil, errors.New("the private key is encrypted in the legacy format; convert it: openssl pkcs8 -topk8 -in <file> -out key.pem")
		}
		if block.Type == "ENCRYPTED PRIVATE KEY" {
			der, err := decryptPKCS8(block.Bytes, password)
			if err != nil {
				return nil, err
			}
			block = &pem.Block{Type: "PRIVATE KEY", Bytes: der}
		}
		if err := pem.Encode(&plain, block); err != nil {
			return nil, err
		}
	}
	return plain.Bytes(), nil
}

func decryptPKCS8(der []byte, password string) ([]byte, error) {
	unsupported := errors.New("the private key is encrypted in a way that is not supported (PBES2 with AES is); convert it: openssl pkcs8 -topk8 -v2 aes256 -in <file> -out key.pem")
	if password == "" {
		return nil, errors.New("the private key is encrypted: set kafka.ssl.key.password")
	}
	var key encryptedKey
	var scheme pbes2
	var parameters pbkdf2Parameters
	var iv []byte
	if _, err := asn1.Unmarshal(der, &key); err != nil {
		return nil, fmt.Errorf("reading the encrypted private key: %w", err)
	}
	if !key.Algorithm.Algorithm.Equal(oidPBES2) {
		return nil, unsupported
	}
	if _, err := asn1.Unmarshal(key.Algorithm.Parameters.FullBytes, &scheme); err != nil || !scheme.Derivation.Algorithm.Equal(oidPBKDF2) {
		return nil, unsupported
	}
	if _, err := asn1.Unmarshal(scheme.Derivation.Parameters.FullBytes, &parameters); err != nil {
		return nil, unsupported
	}
	prf := ""
	if parameters.PRF.Algorithm != nil {
		prf = parameters.PRF.Algorithm.String()
	}
	newHash, known := pseudoRandom[prf]
	size, aesCBC := aesKeySizes[scheme.Encryption.Algorithm.String()]
	_, err := asn1.Unmarshal(scheme.Encryption.Parameters.FullBytes, &iv)
	if !known || !aesCBC || err != nil || len(iv) != aes.BlockSize ||
		parameters.Iterations < 1 || parameters.Iterations > maxIterations {
		return nil, unsupported
	}
	derived, err := pbkdf2.Key(newHash, password, parameters.Salt, parameters.Iterations, size)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of the private key: %w", err)
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, err
	}
	wrong := errors.New("the private key cannot be decrypted: kafka.ssl.key.password is wrong")
	if len(key.Data) == 0 || len(key.Data)%aes.BlockSize != 0 {
		return nil, wrong
	}
	out := make([]byte, len(key.Data))
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(out, key.Data)
	padding := int(out[len(out)-1])
	if padding < 1 || padding > aes.BlockSize || !bytes.Equal(out[len(out)-padding:], bytes.Repeat([]byte{byte(padding)}, padding)) {
		return nil, wrong
	}
	return out[:len(out)-padding], nil
}
