import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);

const version = '4.2.1';
const jarsFolder = fileURLToPath(new URL(`../node_modules/.cache/kafka-${version}/`, import.meta.url));
const downloadMaxMs = 300_000;

/** Without this, the server would not say anything: it leaves the choice of a logger to its distribution. */
const logger = { group: 'org.slf4j', name: 'slf4j-simple', version: '1.7.36' };

const project = `
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>relay</groupId>
  <artifactId>kafka-server</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>${version}</version></dependency>
    <dependency><groupId>${logger.group}</groupId><artifactId>${logger.name}</artifactId><version>${logger.version}</version></dependency>
  </dependencies>
</project>
`;

/** Where a server has its data, and where it listens at 127.0.0.1. */
export interface KafkaPlace {
  readonly folder: string;
  readonly port: number;
  readonly controllerPort: number;
}

/** What a server has beside what every one has. */
export interface KafkaAdditions {
  /** Further listeners, by their names: where, such as `127.0.0.1:9093`, and with which protocol. */
  readonly listeners?: Readonly<Record<string, { readonly address: string; readonly protocol: string }>>;
  readonly properties?: Readonly<Record<string, string | number | boolean>>;
  /** The port of another server's controller, whose cluster it joins as the second server. Default: a cluster of its own. */
  readonly joins?: number;
  /** The ports of a server that has been stopped, which this one takes. Default: free ones. */
  readonly ports?: readonly [port: number, controllerPort: number];
  /** Passwords by the names of their users, who are known by SCRAM. */
  readonly users?: Readonly<Record<string, string>>;
}

/**
 * The class path of a Kafka server of one node. Its jars come from Maven Central, and are kept for the next run.
 *
 * @throws Error when this machine has no Java or no Maven, or cannot get the jars
 */
export async function kafkaClassPath(): Promise<string> {
  await run('java', ['-version']);
  const kept = await readdir(jarsFolder).catch(() => []);
  if (kept.length === 0) await download();
  const names = await readdir(jarsFolder);
  return names.map((name) => join(jarsFolder, name)).join(delimiter);
}

/** Writes the settings of a server, and makes its folder one that a server can be started in. */
export async function formatKafka(
  classPath: string,
  place: KafkaPlace,
  additions: KafkaAdditions = {},
): Promise<void> {
  const settings = settingsIn(place.folder);
  await writeFile(settings, propertiesOf(place, additions));
  const options = ['--cluster-id', 'MkU3OEVBNTcwNTJENDM2Qg', '--config', settings];
  for (const [name, password] of Object.entries(additions.users ?? {}))
    for (const mechanism of ['SCRAM-SHA-256', 'SCRAM-SHA-512'])
      options.push('--add-scram', `${mechanism}=[name=${name},password=${password}]`);
  await run('java', [...machine, classPath, 'kafka.tools.StorageTool', 'format', ...options]);
}

/** The program that runs a server in a folder that {@link formatKafka} has prepared, until it gets a signal. */
export function kafkaProgram(classPath: string, folder: string) {
  return { command: 'java', args: [...machine, classPath, 'kafka.Kafka', settingsIn(folder)] };
}

/** A small machine that starts quickly. */
const machine = ['-Xmx512m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-cp'];

function settingsIn(folder: string): string {
  return join(folder, 'server.properties');
}

function propertiesOf(
  { folder, port, controllerPort }: KafkaPlace,
  { listeners: further, properties, joins }: KafkaAdditions,
): string {
  const protocol = 'PLAINTEXT';
  const controller = { address: `127.0.0.1:${joins ?? controllerPort}`, protocol };
  const listeners = Object.entries({
    CLIENTS: { address: `127.0.0.1:${port}`, protocol },
    CONTROLLER: controller,
    ...further,
  });
  const own = listeners.filter(([, listener]) => joins === undefined || listener !== controller);
  return Object.entries({
    'process.roles': joins === undefined ? 'broker,controller' : 'broker',
    'node.id': joins === undefined ? 1 : 2,
    'controller.quorum.voters': `1@${controller.address}`,
    'controller.listener.names': 'CONTROLLER',
    'inter.broker.listener.name': 'CLIENTS',
    'listener.security.protocol.map': listeners.map(([name, each]) => `${name}:${each.protocol}`).join(),
    listeners: own.map(([name, { address }]) => `${name}://${address}`).join(),
    'log.dirs': join(folder, 'data'),
    // Allows everything that no entry of an access control list forbids.
    'authorizer.class.name': 'org.apache.kafka.metadata.authorizer.StandardAuthorizer',
    'allow.everyone.if.no.acl.found': true,
    // Only for clients that ask for it.
    'auto.create.topics.enable': true,
    ...properties,
  })
    .map(([name, value]) => `${name}=${value}\n`)
    .join('');
}

/** Another process may do the same at the same time: the folder appears only when it is complete. */
async function download(): Promise<void> {
  await mkdir(join(jarsFolder, '..'), { recursive: true });
  const folder = await mkdtemp(join(jarsFolder, '..', 'kafka-jars-'));
  try {
    await downloadWithMaven(folder);
    await rename(join(folder, 'jars'), jarsFolder).catch(async (error: unknown) => {
      if ((await readdir(jarsFolder).catch(() => [])).length === 0) throw error;
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Maven knows what the machine has as a mirror. */
async function downloadWithMaven(folder: string): Promise<void> {
  await writeFile(join(folder, 'pom.xml'), project);
  const goal = ['dependency:copy-dependencies', '-DincludeScope=runtime', '-DoutputDirectory=jars'];
  await run('mvn', ['--quiet', '--batch-mode', ...goal], { cwd: folder, timeout: downloadMaxMs });
}
