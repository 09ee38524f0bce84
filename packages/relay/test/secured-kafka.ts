import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { type Certificates, makeCertificates } from './certificates.js';
import type { KafkaAdditions } from './kafka-program.js';
import { KafkaServer, freePorts } from './kafka-server.js';
import { skipTests } from './servers.js';

export const user = { username: 'ann', password: 'pass-w0rd' } as const;

/** The mechanism that the server takes a password by for {@link sessionMs}. */
export const briefly = 'SCRAM-SHA-512';
export const sessionMs = 500;

/** The mechanism that it takes a password by for a hundred days, which is longer than a timer can wait. */
export const lastingly = 'SCRAM-SHA-256';
const lastingMs = 100 * 86_400_000;

/** A Kafka server that takes connections with TLS, from users with passwords and from clients with certificates. */
export interface SecuredKafka {
  readonly server: KafkaServer;
  readonly certificates: Certificates;
  /** Where it asks for a user and password, by each mechanism. */
  readonly passwordPort: number;
  /** Where it asks for the certificate of the client. */
  readonly certificatePort: number;
  stop(): Promise<void>;
}

/**
 * Starts one.
 *
 * @returns `undefined`, after one line that says why, when it cannot be started here
 */
export async function securedKafka(): Promise<SecuredKafka | undefined> {
  const folder = await mkdtemp(join(tmpdir(), 'kafka-certificates-'));
  const remove = (): Promise<void> => rm(folder, { recursive: true, force: true });
  const [passwordPort = 0, certificatePort = 0] = await freePorts(2);
  const certificates = await makeCertificates(folder).catch((error: unknown) => {
    const [reason = ''] = String(error).split('\n');
    process.stderr.write(`No certificates can be made here: ${reason}\n`);
    return undefined;
  });
  const listeners = {
    PASSWORDS: { address: `localhost:${passwordPort}`, protocol: 'SASL_SSL' },
    CERTIFICATES: { address: `127.0.0.1:${certificatePort}`, protocol: 'SSL' },
  };
  const server = certificates && (await KafkaServer.start({ listeners, ...settingsWith(certificates) }));
  if (certificates === undefined || server === undefined) {
    await remove();
    return skipTests('No Kafka with TLS: install OpenSSL 3, java and mvn');
  }
  const stop = (): Promise<void> => server.stop().then(remove);
  return { server, certificates, passwordPort, certificatePort, stop };
}

const modules = 'org.apache.kafka.common.security';

function settingsWith({ authority, server }: Certificates): KafkaAdditions {
  const withPasswords = 'listener.name.passwords';
  const { username, password } = user;
  return {
    users: { [username]: password },
    properties: {
      'auto.create.topics.enable': false,
      [`${withPasswords}.sasl.enabled.mechanisms`]: 'PLAIN,SCRAM-SHA-256,SCRAM-SHA-512',
      [`${withPasswords}.plain.sasl.jaas.config`]: `${modules}.plain.PlainLoginModule required user_${username}="${password}";`,
      [`${withPasswords}.scram-sha-256.sasl.jaas.config`]: `${modules}.scram.ScramLoginModule required;`,
      [`${withPasswords}.scram-sha-512.sasl.jaas.config`]: `${modules}.scram.ScramLoginModule required;`,
      [`${withPasswords}.${briefly.toLowerCase()}.connections.max.reauth.ms`]: sessionMs,
      [`${withPasswords}.${lastingly.toLowerCase()}.connections.max.reauth.ms`]: lastingMs,
      'listener.name.certificates.ssl.client.auth': 'required',
      'ssl.keystore.type': 'PEM',
      'ssl.keystore.location': server,
      'ssl.truststore.type': 'PEM',
      'ssl.truststore.location': authority,
    },
  };
}
