import { execa } from 'execa';
import { spawnSync } from 'node:child_process';
import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';

import { publishedEvents } from '../apps/wallet-service/src/published-events.ts';
import { asyncApiDocument } from '../packages/relay/src/asyncapi.ts';
import { orders } from '../packages/relay/test/orders.ts';

// What teams without the classes do with the AsyncAPI document: AsyncAPI's own generator makes models of it, which compilers accept.
// `@asyncapi/modelina` has a hundred packages of its own, so that it is installed only here.
const modelina = '@asyncapi/modelina@5.10.1';

/** What this test uses of the generator. */
type Generator = new () => {
  generateToFiles(
    document: object,
    folder: string,
    options: Readonly<Record<string, string>>,
  ): Promise<readonly { readonly modelName: string }[]>;
};
let generators: Readonly<
  Record<'JavaFileGenerator' | 'PythonFileGenerator' | 'TypeScriptFileGenerator', Generator>
>;
let installed: string;
beforeAll(async () => {
  installed = mkdtempSync(join(tmpdir(), 'modelina-'));
  await execa('npm', ['install', '--no-audit', '--no-fund', '--ignore-scripts', modelina], {
    cwd: installed,
  });
  const main = createRequire(join(installed, 'package.json')).resolve('@asyncapi/modelina');
  generators = (await import(pathToFileURL(main).href)) as typeof generators;
});
afterAll(() => rmSync(installed, { recursive: true }));

/** With the classes that a generator makes in each language; of an event without fields, it makes none in Java and Python. */
const documents = [
  {
    name: 'the events of the wallet service',
    document: asyncApiDocument({ ...publishedEvents, namespace: 'com.example.wallet' }),
    classes: [
      'TransferInitiatedEvent',
      'TransferReceivedEvent',
      'TransferRefundedEvent',
      'TransferRefusedEvent',
      'WalletCreatedEvent',
      'WalletMoneyDepositedEvent',
      'WalletMoneyWithdrawnEvent',
      'WalletTransferReceivedEvent',
    ],
  },
  {
    name: 'nested payloads',
    document: orders(),
    classes: [
      'Money',
      'MoneyCurrency',
      'OrderCancelledEvent',
      'OrderCancelledEventBy',
      'OrderPlacedEvent',
      'OrderPlacedEventCategory',
      'OrderPlacedEventDeliveryOption1',
      'OrderPlacedEventDeliveryOption2',
      'OrderPlacedEventGiftOption1',
      'OrderPlacedEventLinesItem',
      'OrderPlacedEventLinesItemSize',
      'OrderPlacedEventLinesItemTaxesValue',
      'OrderPlacedEventShipTo',
    ],
  },
];

interface Language {
  readonly name: string;
  /** What it needs, and how it says its version. */
  readonly compiler: readonly [command: string, ...args: readonly string[]];
  readonly generate: (
    document: object,
    folder: string,
  ) => ReturnType<InstanceType<Generator>['generateToFiles']>;
  readonly compile: (folder: string, command: string) => Promise<unknown>;
}

const preferLocal = { preferLocal: true, localDir: join(import.meta.dirname, '..') };

const languages: readonly Language[] = [
  {
    name: 'TypeScript',
    compiler: [process.execPath, '--version'],
    generate: (document, folder) =>
      new generators.TypeScriptFileGenerator().generateToFiles(document, folder, { exportType: 'named' }),
    compile: (folder) =>
      execa(
        'tsc',
        [
          '--noEmit',
          '--ignoreConfig',
          '--strict',
          '--module',
          'esnext',
          '--moduleResolution',
          'bundler',
          ...globSync(`${folder}/*.ts`),
        ],
        preferLocal,
      ),
  },
  {
    name: 'Java',
    compiler: ['javac', '-version'],
    generate: (document, folder) =>
      new generators.JavaFileGenerator().generateToFiles(document, folder, { packageName: 'events' }),
    compile: (folder, command) =>
      execa(command, ['-d', join(folder, 'classes'), ...globSync(`${folder}/*.java`)]),
  },
  {
    name: 'Python',
    compiler: ['python3', '--version'],
    generate: (document, folder) =>
      new generators.PythonFileGenerator().generateToFiles(document, join(folder, 'events'), {
        packageName: 'events',
      }),
    compile: async (folder, command) => {
      writeFileSync(join(folder, 'events/__init__.py'), '');
      const modules = globSync('*.py', { cwd: join(folder, 'events') }).map((file) => file.slice(0, -3));
      // Importing compiles, and finds what a module lacks.
      await execa(command, ['-c', modules.map((each) => `import events.${each}`).join('\n')], {
        cwd: folder,
      });
    },
  },
];

const cases = languages.flatMap((language) => documents.map((document) => ({ language, ...document })));

test.for(cases)(
  'models in $language.name of $name are named after their events and compile',
  async ({ language: { compiler, generate, compile }, document, classes }, { skip }) => {
    const [command, ...args] = compiler;
    const isMissing = spawnSync(command, args).error !== undefined;
    if (isMissing && process.env['RELAY_BROKERS'] === 'required') throw new Error(`${command} is missing`);
    skip(isMissing, `${command} is missing`);
    const folder = mkdtempSync(join(tmpdir(), 'generated-models-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const models = await generate(document, folder);
    const names = models.map(({ modelName }) => modelName);
    expect(names).toEqual(expect.arrayContaining(classes));
    const files = globSync(`${folder}/**/*.{ts,java,py}`);
    expect(files.length).toBeGreaterThanOrEqual(classes.length);
    expect(files.filter((file) => /anonym/i.test(file + readFileSync(file, 'utf8')))).toEqual([]);
    await compile(folder, command);
  },
);
