import {
  shardsAwaySimulation,
  walletSimulation,
} from '../../apps/wallet-service/test/simulation/wallet-simulation.ts';
import { library } from '../../packages/testing/test/simulation/library-simulation.ts';
import {
  registersSimulation,
  withLosses,
} from '../../packages/testing/test/simulation/registers-simulation.ts';
import { thirdPartiesSimulation } from '../../packages/testing/test/simulation/third-parties-simulation.ts';

interface Searched {
  readonly seedsPerRound: number;
  readonly simulation: {
    run(seed: number): Promise<{ readonly violations: readonly string[] }>;
  };
}

/** The simulations of the project's own tests, and how many seeds each of them runs for one seed of the others. */
const simulations: Readonly<Record<string, Searched>> = {
  actions: { seedsPerRound: 3, simulation: registersSimulation({ handles: false }) },
  deliveries: { seedsPerRound: 1, simulation: registersSimulation() },
  losses: { seedsPerRound: 1, simulation: registersSimulation({ faults: withLosses }) },
  library: { seedsPerRound: 1, simulation: library },
  outages: { seedsPerRound: 1, simulation: thirdPartiesSimulation() },
  wallets: { seedsPerRound: 1, simulation: walletSimulation() },
  away: { seedsPerRound: 1, simulation: shardsAwaySimulation() },
};

/** Sends one message to the parent process. */
function tell(message: object): void {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}

async function violationsOf(
  name: string,
  { simulation }: Searched,
  seed: number,
): Promise<readonly string[]> {
  tell({ kind: 'seed', simulation: name, seed });
  try {
    return (await simulation.run(seed)).violations;
  } catch (error) {
    return [`the simulation itself fails: ${String(error)}`];
  }
}

/** Runs seeds of all simulations in turn, until one fails. */
async function explore(rounds: number): Promise<void> {
  for (let round = 0; round < rounds; round++) {
    for (const [name, searched] of Object.entries(simulations)) {
      const { seedsPerRound } = searched;
      for (let seed = round * seedsPerRound + 1; seed <= (round + 1) * seedsPerRound; seed++) {
        const violations = await violationsOf(name, searched, seed);
        if (violations.length > 0) return tell({ kind: 'violated', violations });
      }
    }
  }
  tell({ kind: 'passed' });
}

/** Runs one seed of one simulation. */
async function runOne(name: string, seed: number): Promise<void> {
  const searched = simulations[name];
  if (searched === undefined) throw new Error(`There is no simulation ${name}`);
  const violations = await violationsOf(name, searched, seed);
  tell(violations.length > 0 ? { kind: 'violated', violations } : { kind: 'passed' });
}

const [how, ...rest] = process.argv.slice(2);
await (how === 'explore' ? explore(Number(rest[0])) : runOne(rest[0] ?? '', Number(rest[1])));
// A bug may leave something behind that keeps the process alive.
process.exit();
