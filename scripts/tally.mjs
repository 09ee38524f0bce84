const line = /^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$/;

/** Counts what passed, failed and was skipped, and ends a run with the one line that tells it. */
export class Tally {
  passed = 0;
  failed = 0;
  skipped = 0;

  /** Reads a tally from the last line of what a run printed; `undefined` when that line is none. */
  static fromOutput(output) {
    const match = line.exec(output.trimEnd().split('\n').at(-1) ?? '');
    if (!match) return undefined;
    const tally = new Tally();
    tally.add({ passed: Number(match[1]), failed: Number(match[2]), skipped: Number(match[3] ?? 0) });
    return tally;
  }

  add({ passed = 0, failed = 0, skipped = 0 }) {
    this.passed += passed;
    this.failed += failed;
    this.skipped += skipped;
  }

  /** Prints the line, and lets the process fail when anything failed or nothing passed. */
  close() {
    if (this.passed === 0 && this.failed === 0) this.failed = 1;
    if (this.failed > 0) process.exitCode = 1;
    const skipped = this.skipped > 0 ? `, ${this.skipped} skipped` : '';
    console.log(`${this.passed} passed, ${this.failed} failed${skipped}`);
  }
}
