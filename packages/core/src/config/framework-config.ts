import * as z from 'zod';

import { timerMaxMs } from '../clock.js';
import { ShardIdentifier } from '../id/shard-identifier.js';
import { camelCaseKeys, kebabCasePath, unknownKeys, unknownKeysBesidePassword } from './config-keys.js';
import { ConfigurationError, type ConfigurationIssue } from './configuration-errors.js';
import { Secret, parseDatabaseUrl } from './database-url.js';
import { type GroupSettings, defaultGroupSettings } from './settings.js';
import type { DatabaseConfig, MemberConfig, ShardingConfig } from './sharding-config.js';

const namePart = '[A-Za-z_][A-Za-z0-9_-]*';

/** The form of a namespace. */
const namespacePattern: RegExp = new RegExp(`^${namePart}(\\.${namePart})*$`);
/** How many characters a namespace may have, since it is part of an index of idempotency keys. */
const namespaceMax = 255;
/** The message for an invalid namespace. */
const namespaceIssue: string =
  `is not a valid namespace of at most ${namespaceMax} characters: write names separated by dots, each of letters, digits, _ and -, ` +
  'beginning with a letter or _';

/**
 * Refuses the namespaces that are refused in a configuration file, too.
 *
 * @throws ConfigurationError `invalid-configuration` when the namespace is invalid
 */
export function checkNamespace(namespace: string): void {
  if (typeof namespace !== 'string')
    throw new ConfigurationError([{ path: 'namespace', message: 'is not a string' }]);
  if (namespacePattern.test(namespace) && namespace.length <= namespaceMax) return;
  const message = `'${namespace.slice(0, 64)}' ${namespaceIssue}`;
  throw new ConfigurationError([{ path: 'namespace', message }]);
}

const fromOne = 'must be a whole number from 1';
const waitMs = `must be a whole number from 1 to ${timerMaxMs}`;

function setting(name: keyof GroupSettings) {
  return z.int(fromOne).min(1, fromOne).default(defaultGroupSettings[name]);
}

const settingsSchema = z.strictObject(
  {
    plansMax: setting('plansMax'),
    queueMax: setting('queueMax'),
    queueWaitMs: z
      .int(waitMs)
      .min(1, waitMs)
      .max(timerMaxMs, waitMs)
      .default(defaultGroupSettings.queueWaitMs),
    planSizeMax: setting('planSizeMax'),
    planCharactersMax: setting('planCharactersMax'),
  },
  { error: 'must be true, false or a section' },
);

/** The section `group-commit`: `true` means all defaults, and `false` turns it off. */
const groupCommitSchema = z
  .preprocess(
    (section) => (section === true ? {} : section === false ? undefined : section),
    settingsSchema.optional(),
  )
  .transform((settings): GroupSettings | false => settings ?? false);

const migrateModes = ['on-start', 'check', 'off'] as const;

/**
 * What opening a database does about its schema: `on-start` applies missing migrations; `check` applies none, and
 * refuses a schema that is older or newer than the code; `off` does not check the schema.
 */
export type MigrateMode = (typeof migrateModes)[number];

/** The configuration below the key `framework`. */
export interface FrameworkConfig {
  /** Names separated by dots; recorded with every event. */
  readonly namespace: string;
  readonly sharding: ShardingConfig;
  /** The driver's `migrate` option. Default `on-start`. */
  readonly migrate: MigrateMode;
  /** The section `group-commit`, for executors. Default false; `true` stands for the default settings. */
  readonly groupCommit: GroupSettings | false;
  /**
   * The section `delivery` with its keys in camelCase. The package that delivers events validates it. Default: empty.
   */
  readonly delivery: Readonly<Record<string, unknown>>;
  /**
   * The section `relay`, a list with its keys in camelCase. The package that publishes to brokers validates it. Default: empty.
   */
  readonly relay: readonly Readonly<Record<string, unknown>>[];
  /** The section `http`, with its keys in camelCase. The application that listens validates it. Default: empty. */
  readonly http: Readonly<Record<string, unknown>>;
  /** The section `security`, with its keys in camelCase. The application that knows its callers validates it. Default: empty. */
  readonly security: Readonly<Record<string, unknown>>;
  /** The section `metrics`, with its keys in camelCase. The application that serves metrics validates it. Default: empty. */
  readonly metrics: Readonly<Record<string, unknown>>;
  /** The section `operator`, with its keys in camelCase. The application that serves its operators validates it. Default: empty. */
  readonly operator: Readonly<Record<string, unknown>>;
}

const sslModes = ['verify-full', 'no-verify', 'disable'] as const;
const file = z.string().min(1, 'is empty: name a file');

const sslSchema = z
  .strictObject({
    mode: z.enum(sslModes, { error: `must be one of ${sslModes.join(', ')}` }).default('verify-full'),
    caFile: file.optional(),
    certFile: file.optional(),
    keyFile: file.optional(),
  })
  .refine(({ certFile, keyFile }) => (certFile === undefined) === (keyFile === undefined), {
    error: 'must have both cert-file and key-file, or neither',
  })
  .refine(({ mode, ...files }) => mode === 'verify-full' || files.caFile === undefined, {
    error: 'has a ca-file, which only verify-full reads',
  });

const databaseFields = z.strictObject({
  jdbcUrl: z.string().transform((text, context) => {
    const url = parseDatabaseUrl(text);
    if (typeof url !== 'string') return url;
    context.addIssue(url);
    return z.NEVER;
  }),
  username: z.string().optional(),
  password: z.string().optional(),
  ssl: sslSchema.optional(),
  driverClassName: z.string().optional(),
  maximumPoolSize: z.int().min(1).max(1_000).default(10),
  acquisitionTimeoutMs: z.int().min(1).max(600_000).default(5_000),
  acquisitionQueueMax: z.int().min(0).max(100_000).default(1_000),
  statementTimeoutMs: z.int().min(1).max(3_600_000).default(10_000),
  minimumIdle: z.int().min(0).max(1_000).default(0),
  idleTimeout: z.int().min(0).max(86_400_000).default(600_000),
  maxLifetime: z.int().min(0).max(86_400_000).default(1_800_000),
  leakDetectionThreshold: z.int().min(0).max(86_400_000).default(0),
});

const databaseSchema = databaseFields.refine(
  ({ minimumIdle, maximumPoolSize }) => minimumIdle <= maximumPoolSize,
  { error: 'is above maximum-pool-size, whose default is 10', path: ['minimumIdle'] },
);

const memberSchema = z.strictObject({
  member: z.int().min(0).max(63),
  name: z.string().min(1),
  configs: z.object({ primaryConfig: databaseSchema }).catchall(databaseSchema),
});

const groupSchema = z.strictObject({
  group: z.int().min(0).max(255),
  name: z.string().min(1),
  members: z.array(memberSchema).min(1),
});

/** Passed on with every key: the package that reads the section validates it. */
const sectionSchema = z.custom<Readonly<Record<string, unknown>>>(
  (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
  { error: 'is not a section' },
);

const documentSchema = z.strictObject({
  framework: z.strictObject({
    namespace: z.string().max(namespaceMax, namespaceIssue).regex(namespacePattern, namespaceIssue),
    sharding: z.strictObject({
      defaultShard: z.strictObject({ group: z.int().min(0).max(255), member: z.int().min(0).max(63) }),
      groups: z.array(groupSchema).min(1),
    }),
    migrate: z.enum(migrateModes, { error: `must be one of ${migrateModes.join(', ')}` }).default('on-start'),
    groupCommit: groupCommitSchema.default(false),
    delivery: sectionSchema.default({}),
    relay: z.array(sectionSchema, { error: 'is not a list' }).default([]),
    http: sectionSchema.default({}),
    security: sectionSchema.default({}),
    metrics: sectionSchema.default({}),
    operator: sectionSchema.default({}),
  }),
});

/**
 * What {@link parseFrameworkConfig} reads, as a schema with its keys in camelCase, for programs that take values from elsewhere than a
 * file. The sections that are only passed on have no keys.
 */
export function configurationKeys(): z.ZodType {
  // What `true` and `false` stand for would hide the keys.
  const groupCommit = z.union([z.boolean(), settingsSchema]);
  return documentSchema.extend({ framework: documentSchema.shape.framework.extend({ groupCommit }) });
}

type ShardingDocument = z.infer<typeof documentSchema>['framework']['sharding'];

/**
 * Validates a whole configuration tree, as read from a YAML or JSON file, and names every fault by its path.
 *
 * Keys may be in kebab-case or camelCase. Unknown keys are faults.
 *
 * @throws ConfigurationError `invalid-configuration` with all faults; it never shows values, nor keys that may be a
 * password
 */
export function parseFrameworkConfig(tree: unknown): FrameworkConfig {
  const document = documentSchema.safeParse(camelCaseKeys(tree), { reportInput: true });
  if (!document.success) throw new ConfigurationError(document.error.issues.flatMap(faultsOf));
  const { sharding, ...sections } = document.data.framework;
  const faults = duplicates(sharding);
  const members = sharding.groups.flatMap((group, index) => membersOf(group, index));
  const defaultShard = ShardIdentifier.of(sharding.defaultShard.group, sharding.defaultShard.member);
  if (!members.some(({ shard }) => shard === defaultShard)) {
    faults.push({
      path: 'framework.sharding.default-shard',
      message: `${defaultShard} is not a member of any group`,
    });
  }
  if (faults.length > 0) throw new ConfigurationError(faults);
  return { ...sections, sharding: { defaultShard, members } };
}

function faultsOf(issue: z.core.$ZodIssue): readonly ConfigurationIssue[] {
  if (issue.code === 'unrecognized_keys') {
    const isDatabase = issue.path.at(-2) === 'configs';
    return isDatabase
      ? unknownKeysBesidePassword(issue.path, issue.keys, Object.keys(databaseSchema.shape))
      : unknownKeys(issue.path, issue.keys);
  }
  const message = issue.input === undefined ? 'is missing' : issue.message;
  return [{ path: kebabCasePath(issue.path) || '(root)', message }];
}

function duplicates({ groups }: ShardingDocument): ConfigurationIssue[] {
  const seen = new Set<string>();
  const faults: ConfigurationIssue[] = [];
  const see = (key: string, path: readonly PropertyKey[]): void => {
    if (seen.has(key)) faults.push({ path: kebabCasePath(path), message: `${key} occurs twice` });
    seen.add(key);
  };
  groups.forEach(({ group, members }, groupIndex) => {
    const groupPath = ['framework', 'sharding', 'groups', groupIndex];
    see(`group ${group}`, [...groupPath, 'group']);
    members.forEach(({ member }, memberIndex) => {
      see(`member ${member} of group ${group}`, [...groupPath, 'members', memberIndex, 'member']);
    });
  });
  return faults;
}

function membersOf(group: ShardingDocument['groups'][number], groupIndex: number): readonly MemberConfig[] {
  return group.members.map(({ member, name, configs }, memberIndex) => {
    const path = ['framework', 'sharding', 'groups', groupIndex, 'members', memberIndex, 'configs'];
    const databases = Object.entries(configs).map(
      ([key, database]) => [key, databaseOf(key, kebabCasePath([...path, key]), database)] as const,
    );
    return {
      shard: ShardIdentifier.of(group.group, member),
      groupName: group.name,
      name,
      databases: new Map(databases),
    };
  });
}

function databaseOf(name: string, path: string, database: z.infer<typeof databaseSchema>): DatabaseConfig {
  const { address, username, password } = database.jdbcUrl;
  return {
    path,
    name,
    address,
    username: database.username ?? username,
    password: database.password === undefined ? password : new Secret(database.password),
    ssl: database.ssl,
    driverClassName: database.driverClassName,
    poolMax: database.maximumPoolSize,
    acquisitionTimeoutMs: database.acquisitionTimeoutMs,
    acquisitionQueueMax: database.acquisitionQueueMax,
    statementTimeoutMs: database.statementTimeoutMs,
    idleMin: database.minimumIdle,
    idleTimeoutMs: database.idleTimeout,
    lifetimeMaxMs: database.maxLifetime,
    leakThresholdMs: database.leakDetectionThreshold,
  };
}
